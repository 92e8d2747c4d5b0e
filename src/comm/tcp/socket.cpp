#include "comm/tcp/socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "base/error.h"

namespace moesaic::tcp {
namespace {

constexpr int kBacklog = 4096;

std::string last_error() {
  return std::strerror(errno);
}

void set_option(const Socket& socket, int level, int option, int value) {
  ::setsockopt(socket.descriptor(), level, option, &value,
               sizeof value);  // all of ours are matters of speed or comfort
}

Socket new_socket(int family) {
  Socket socket(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  require<CommError>(static_cast<bool>(socket), "no socket could be made: {}", last_error());
  return socket;
}

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

AddressList look_up(const std::string& host, int port, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* list = nullptr;
  const int problem =
      ::getaddrinfo(host.empty() ? nullptr : host.c_str(), std::to_string(port).c_str(), &hints, &list);
  require<CommError>(problem == 0 && list != nullptr, "the host {} cannot be found: {}", host,
                     problem == EAI_SYSTEM ? last_error() : ::gai_strerror(problem));
  return {list, ::freeaddrinfo};
}

/// IPv4 addresses inside IPv6 come out as IPv4.
std::string host_of(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET) {
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(address).sin_addr, text, sizeof text);
  } else {
    const in6_addr& six = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
    if (IN6_IS_ADDR_V4MAPPED(&six))
      ::inet_ntop(AF_INET, six.s6_addr + 12, text, sizeof text);
    else
      ::inet_ntop(AF_INET6, &six, text, sizeof text);
  }
  return text;
}

}  // namespace

Socket& Socket::operator=(Socket&& other) noexcept {
  if (this != &other) {
    close();
    std::swap(descriptor_, other.descriptor_);
  }
  return *this;
}

void Socket::close() {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

int64_t Socket::send(const void* head, int64_t head_bytes, const void* data, int64_t bytes) {
  iovec parts[] = {{const_cast<void*>(head), static_cast<size_t>(head_bytes)},
                   {const_cast<void*>(data), static_cast<size_t>(bytes)}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  const ssize_t sent = ::sendmsg(descriptor_, &message, MSG_NOSIGNAL);
  if (sent >= 0) return sent;
  return errno == EAGAIN || errno == EINTR ? 0 : -1;
}

int64_t Socket::receive(void* data, int64_t bytes) {
  const ssize_t received = ::recv(descriptor_, data, static_cast<size_t>(bytes), 0);
  if (received > 0) return received;
  return received < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
}

void Socket::end_sending() {
  ::shutdown(descriptor_, SHUT_WR);
}

std::string text_of(const std::string& host, int port) {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

bool is_loopback(const std::string& host) {
  in_addr four{};
  if (::inet_pton(AF_INET, host.c_str(), &four) == 1) return (ntohl(four.s_addr) >> 24) == 127;
  return host == "localhost" || host == "::1";
}

std::vector<Endpoint> resolve(const std::string& host, int port) {
  const AddressList list = look_up(host, port, 0);
  std::vector<Endpoint> all;
  for (const addrinfo* at = list.get(); at != nullptr; at = at->ai_next) {
    sockaddr_storage address{};
    std::memcpy(&address, at->ai_addr, at->ai_addrlen);
    all.push_back({host_of(address), port});
  }
  return all;
}

Socket listen_at(const std::string& host, int port) {
  // All addresses: an IPv6 socket takes IPv4 as well; where there is no IPv6, an IPv4 one.
  std::string problem;
  for (const std::string& local :
       host.empty() ? std::vector<std::string>{"::", "0.0.0.0"} : std::vector{host}) {
    const AddressList list = look_up(local, port, AI_PASSIVE | AI_NUMERICHOST);
    Socket socket(::socket(list->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (socket) {
      set_option(socket, SOL_SOCKET, SO_REUSEADDR,
                 1);  // not to wait for the last job's connections to be forgotten
      if (list->ai_family == AF_INET6) set_option(socket, IPPROTO_IPV6, IPV6_V6ONLY, 0);
      if (::bind(socket.descriptor(), list->ai_addr, list->ai_addrlen) == 0 &&
          ::listen(socket.descriptor(), kBacklog) == 0)
        return socket;
    }
    problem = last_error();
    if (errno == EADDRINUSE) break;
  }
  fail<CommError>("port {} of this machine cannot be listened on: {}", port, problem);
}

int port_of(const Socket& listener) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  ::getsockname(listener.descriptor(), reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

Socket accept_from(const Socket& listener) {
  Socket socket(::accept4(listener.descriptor(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!socket) {
    require<CommError>(errno != EMFILE && errno != ENFILE,
                       "no more connections: {}; raise the limit of open files (ulimit -n)", last_error());
    return socket;
  }
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  return socket;
}

std::string peer_host(const Socket& connection) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getpeername(connection.descriptor(), reinterpret_cast<sockaddr*>(&address), &size) != 0) return {};
  return host_of(address);
}

Socket start_connect(const Endpoint& endpoint) {
  const AddressList list = look_up(endpoint.host, endpoint.port, AI_NUMERICHOST);
  Socket socket = new_socket(list->ai_family);
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  const int result = ::connect(socket.descriptor(), list->ai_addr, list->ai_addrlen);
  static_cast<void>(result);  // a refusal that comes at once is found by connect_problem, as a later one is
  return socket;
}

std::string connect_problem(const Socket& socket) {
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(socket.descriptor(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) return std::strerror(error);
  sockaddr_storage mine{}, theirs{};
  socklen_t mine_size = sizeof mine, theirs_size = sizeof theirs;
  ::getsockname(socket.descriptor(), reinterpret_cast<sockaddr*>(&mine), &mine_size);
  if (::getpeername(socket.descriptor(), reinterpret_cast<sockaddr*>(&theirs), &theirs_size) != 0)
    return "connection refused";
  // A port that nobody listens on can be given to the very socket that asks for it, which then speaks to itself.
  if (mine_size == theirs_size && std::memcmp(&mine, &theirs, mine_size) == 0) return "connection refused";
  return {};
}

bool wait_for(const Socket& socket, bool write, double seconds) {
  pollfd event{
      .fd = socket.descriptor(), .events = static_cast<short>(write ? POLLOUT : POLLIN), .revents = 0};
  return ::poll(&event, 1, static_cast<int>(seconds * 1000) + 1) > 0;
}

void allow_many_sockets() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace moesaic::tcp
