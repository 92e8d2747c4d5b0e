#include "comm/tcp/tcp_mesh.h"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/log.h"

namespace moesaic::tcp {
namespace {

constexpr uint64_t kMagic =
    0x6d6f657361696331;  // read the other way round by a machine of the other byte order
constexpr int64_t kReadPerTurn = 4 << 20, kWritePerTurn = 4 << 20;
constexpr double kSecondsForHello = 10;
constexpr double kSecondsForControl = 1;  // to say why a connection is gone
constexpr size_t kMostStrangers = 64;
constexpr uint32_t kListener = ~0u;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// The first thing on a connection: who connects.
struct Hello {
  uint64_t magic, token;
  int64_t rank;
};

}  // namespace

struct TcpMesh::Outgoing {
  std::array<char, sizeof(Header)> head{};
  int64_t head_bytes = 0;
  const std::byte* data = nullptr;
  int64_t bytes = 0;
  Operation* owner = nullptr;
  int64_t sent = 0;  // of both
};

struct TcpMesh::Peer {
  explicit Peer(int64_t number) : rank(number) {}
  const int64_t rank;
  enum State { absent, connecting, open, lost } state = absent;
  Socket socket;
  bool watched_for_writing = false;
  std::string problem;
  double lost_at = 0;
  std::deque<Outgoing> out;
  std::array<char, sizeof(Header)> head{};
  int64_t head_bytes = 0;
  Operation* into = nullptr;  // whose data comes in now
  messages::Bytes attached;   // or what an offer brings
  std::byte* at = nullptr;
  int64_t left = 0;
};

struct TcpMesh::Stranger {
  Socket socket;
  double since = 0;
  std::array<char, sizeof(Hello)> hello{};
  int64_t bytes = 0;
};

TcpMesh::TcpMesh(Control& control, std::vector<std::string> hosts, uint64_t token)
    : Messenger(control), hosts_(std::move(hosts)), token_(token), events_(::epoll_create1(EPOLL_CLOEXEC)) {
  require<CommError>(static_cast<bool>(events_), "no epoll descriptor could be made: {}",
                     std::strerror(errno));
  // A job of one machine need not be seen from others.
  const bool one_machine = std::all_of(hosts_.begin(), hosts_.end(), is_loopback);
  listener_ = listen_at(one_machine ? "127.0.0.1" : "", 0);
  for (const std::string& port : control.all_gather(std::to_string(port_of(listener_))))
    ports_.push_back(std::stoi(port));
  peers_.resize(ports_.size());
  epoll_event event{.events = EPOLLIN, .data = {.u32 = kListener}};
  ::epoll_ctl(events_.descriptor(), EPOLL_CTL_ADD, listener_.descriptor(), &event);
}

TcpMesh::~TcpMesh() = default;

TcpMesh::Peer& TcpMesh::peer(int64_t rank) {
  auto& found = peers_[static_cast<size_t>(rank)];
  if (!found) found = std::make_unique<Peer>(rank);
  return *found;
}

// Connections.

/// The higher rank of two connects.
void TcpMesh::connect(int64_t other) {
  Peer& to = peer(other);
  if (to.state != Peer::absent || other > rank()) return;
  to.socket = start_connect({hosts_[static_cast<size_t>(other)], ports_[static_cast<size_t>(other)]});
  to.state = Peer::connecting;
  Outgoing hello;
  const Hello me{kMagic, token_, rank()};
  std::memcpy(hello.head.data(), &me, sizeof me);
  hello.head_bytes = sizeof me;
  to.out.push_front(hello);
  epoll_event event{.events = EPOLLIN | EPOLLOUT, .data = {.u32 = static_cast<uint32_t>(other)}};
  ::epoll_ctl(events_.descriptor(), EPOLL_CTL_ADD, to.socket.descriptor(), &event);
  to.watched_for_writing = true;
}

void TcpMesh::accept_all() {
  while (Socket socket = accept_from(listener_))
    if (strangers_.size() < kMostStrangers + peers_.size()) strangers_.push_back({std::move(socket), now()});
}

void TcpMesh::read_strangers() {
  for (Stranger& s : strangers_) {
    const int64_t received =
        s.socket.receive(s.hello.data() + s.bytes, static_cast<int64_t>(sizeof(Hello)) - s.bytes);
    s.bytes += std::max<int64_t>(received, 0);
    if (received < 0 || now() - s.since > kSecondsForHello) s.socket.close();
    if (s.bytes < static_cast<int64_t>(sizeof(Hello)) || !s.socket) continue;
    Hello hello;
    std::memcpy(&hello, s.hello.data(), sizeof hello);
    const bool ours = hello.magic == kMagic && hello.token == token_ && hello.rank > rank() &&
                      hello.rank < static_cast<int64_t>(peers_.size());
    if (ours && peer(hello.rank).state == Peer::absent)
      adopt(hello.rank, std::move(s.socket));
    else
      log_warning("closed a connection from {} that is not of this job", peer_host(s.socket));
    s.socket.close();
  }
  std::erase_if(strangers_, [](const Stranger& s) { return !s.socket; });
}

void TcpMesh::adopt(int64_t rank, Socket socket) {
  Peer& from = peer(rank);
  from.socket = std::move(socket);
  from.state = Peer::open;
  epoll_event event{.events = EPOLLIN, .data = {.u32 = static_cast<uint32_t>(rank)}};
  ::epoll_ctl(events_.descriptor(), EPOLL_CTL_ADD, from.socket.descriptor(), &event);
  write(from);
}

void TcpMesh::watch(Peer& peer, bool write) {
  if (peer.watched_for_writing == write || peer.state == Peer::lost) return;
  peer.watched_for_writing = write;
  epoll_event event{.events = EPOLLIN | (write ? EPOLLOUT : 0u),
                    .data = {.u32 = static_cast<uint32_t>(peer.rank)}};
  ::epoll_ctl(events_.descriptor(), EPOLL_CTL_MOD, peer.socket.descriptor(), &event);
}

void TcpMesh::lose(Peer& peer, const std::string& problem) {
  if (peer.state == Peer::lost) return;
  peer.state = Peer::lost;
  peer.problem = problem;
  peer.lost_at = now();
  peer.socket.close();
  peer.into = nullptr;
  peer.out.clear();
}

void TcpMesh::check_connection(int64_t rank) {
  const Peer& p = peer(rank);
  if (p.state == Peer::lost && now() - p.lost_at > kSecondsForControl)
    abort(fmt::format("{} lost its connection to {}: {}", control().describe(this->rank()),
                      control().describe(rank), p.problem));
}

void TcpMesh::drop(Operation& operation) {
  for (auto& p : peers_) {
    if (!p) continue;
    const bool sends =
        std::any_of(p->out.begin(), p->out.end(), [&](const Outgoing& o) { return o.owner == &operation; });
    if (sends || p->into == &operation) lose(*p, "this rank left a collective that was under way");
  }
}

// Moving.

void TcpMesh::progress() {
  std::array<epoll_event, 64> events;
  const int count = ::epoll_wait(events_.descriptor(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<size_t>(i)];
    if (event.data.u32 == kListener) {
      accept_all();
      continue;
    }
    Peer& p = peer(event.data.u32);
    if (p.state == Peer::connecting) {
      if (const std::string problem = connect_problem(p.socket); !problem.empty()) {
        lose(p, problem);
        continue;
      }
      p.state = Peer::open;
    }
    if (p.state == Peer::open && (event.events & EPOLLOUT) != 0) write(p);
    if (p.state == Peer::open && (event.events & ~EPOLLOUT) != 0) read(p);
  }
  if (!strangers_.empty()) read_strangers();
}

void TcpMesh::enqueue(int64_t rank, const Header& header, Operation& owner, const std::byte* data,
                      int64_t bytes) {
  owner.on_queued();
  Peer& to = peer(rank);
  if (to.state == Peer::lost) return;  // the operation stays incomplete, which check_connection() sees
  Outgoing outgoing{.head_bytes = sizeof header, .data = data, .bytes = bytes, .owner = &owner};
  std::memcpy(outgoing.head.data(), &header, sizeof header);
  to.out.push_back(outgoing);
  if (to.state == Peer::open && to.out.size() == 1) write(to);
}

void TcpMesh::write(Peer& peer) {
  for (int64_t written = 0; !peer.out.empty() && written < kWritePerTurn;) {
    Outgoing& first = peer.out.front();
    const int64_t head = std::min(first.sent, first.head_bytes), data = first.sent - head;
    const int64_t left = std::min(first.bytes - data, kWritePerTurn);
    const int64_t sent =
        peer.socket.send(first.head.data() + head, first.head_bytes - head, first.data + data, left);
    if (sent < 0) return lose(peer, "the connection was closed");
    if (sent == 0) break;
    first.sent += sent;
    written += sent;
    count_moved(sent);
    if (first.sent < first.head_bytes + first.bytes) continue;
    if (first.owner != nullptr) first.owner->on_sent();
    peer.out.pop_front();
  }
  watch(peer, !peer.out.empty());
}

void TcpMesh::read(Peer& peer) {
  for (int64_t read = 0; read < kReadPerTurn && peer.state == Peer::open;) {
    const bool data = peer.left > 0;
    const int64_t received =
        data ? peer.socket.receive(peer.at, peer.left)
             : peer.socket.receive(peer.head.data() + peer.head_bytes,
                                   static_cast<int64_t>(sizeof(Header)) - peer.head_bytes);
    if (received < 0) return lose(peer, "the connection was closed");
    if (received == 0) return;
    read += received;
    count_moved(received);
    if (data) {
      peer.at += received;
      peer.left -= received;
      if (peer.left == 0) on_whole(peer);
    } else if ((peer.head_bytes += received) == static_cast<int64_t>(sizeof(Header))) {
      peer.head_bytes = 0;
      on_header(peer);
      if (peer.left == 0) on_whole(peer);
    }
  }
}

/// Finds a place for what follows.
void TcpMesh::on_header(Peer& peer) {
  Header header;
  std::memcpy(&header, peer.head.data(), sizeof header);
  if (header.type == Header::offer) {
    peer.left = attached_bytes(header, peer.rank);
    peer.attached.resize(static_cast<size_t>(peer.left));
    peer.at = peer.attached.data();
    return;
  }
  peer.into = &destination(header, peer.rank);
  peer.at = peer.into->place_for(peer.rank);
  peer.left = header.bytes;
}

/// A header, and what follows it, are here.
void TcpMesh::on_whole(Peer& peer) {
  if (peer.into != nullptr) return std::exchange(peer.into, nullptr)->on_received(peer.rank);
  Header header;
  std::memcpy(&header, peer.head.data(), sizeof header);
  std::optional<messages::Bytes> attached;
  if (header.attached >= 0) attached = std::move(peer.attached);
  peer.attached.clear();
  on_offer(header, peer.rank, std::move(attached));
}

}  // namespace moesaic::tcp
