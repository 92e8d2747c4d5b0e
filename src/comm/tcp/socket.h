#pragma once
// Non-blocking TCP sockets over IPv4 and IPv6. What the system refuses is a CommError that names the address; a peer that
// is gone is not an error here but a value, since its meaning is the caller's to know.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace moesaic::tcp {

class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  ~Socket() { close(); }
  Socket(Socket&& other) noexcept : descriptor_(other.descriptor_) { other.descriptor_ = -1; }
  Socket& operator=(Socket&& other) noexcept;
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  explicit operator bool() const { return descriptor_ >= 0; }
  int descriptor() const { return descriptor_; }
  void close();

  /// Bytes written or read now: 0 = none for the moment, -1 = the connection is gone (or, reading, was ended by the peer).
  int64_t send(const void* data, int64_t bytes) { return send(data, bytes, nullptr, 0); }
  int64_t send(const void* head, int64_t head_bytes, const void* data, int64_t bytes);
  int64_t receive(void* data, int64_t bytes);
  /// No more is sent; the peer reads the end of the stream after what was sent before.
  void end_sending();

 private:
  int descriptor_ = -1;
};

/// A numeric address ("10.0.0.3", "fd00::2") and a port.
struct Endpoint {
  std::string host;
  int port = 0;
};
std::string text_of(const std::string& host, int port);

/// Whether `host` is "localhost" or a numeric address that only this machine reaches.
bool is_loopback(const std::string& host);
/// The numeric addresses of a host, best first; never empty.
std::vector<Endpoint> resolve(const std::string& host, int port);

/// Accepts connections on `port` (0: any free one) of `host`, or of all addresses of this machine when it is empty. Two
/// listeners on one port are refused by the system, also while this one ends.
Socket listen_at(const std::string& host, int port);
int port_of(const Socket& listener);
/// The next connection that waits at a listener, or an empty Socket.
Socket accept_from(const Socket& listener);
/// The numeric address of the other end; empty when the connection is gone.
std::string peer_host(const Socket& connection);

/// Begins to connect. Done once the socket is writable; connected() then says how it ended.
Socket start_connect(const Endpoint& endpoint);
/// Empty when the connection stands, else why it does not.
std::string connect_problem(const Socket& socket);
/// Waits until it can be written (`write`) or read; false after `seconds`.
bool wait_for(const Socket& socket, bool write, double seconds);

/// Raises the limit of open files to what this process may have: a job's ranks are all connected to rank 0.
void allow_many_sockets();

}  // namespace moesaic::tcp
