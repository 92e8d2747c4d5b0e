#include "comm/tcp/tcp_mesh.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/fingerprint.h"
#include "base/log.h"

namespace moesaic::tcp {
namespace {

constexpr uint64_t kMagic =
    0x6d6f657361696331;                      // read the other way round by a machine of the other byte order
constexpr size_t kMaxEarly = 1 << 16;        // offers of one rank that this one has not come to yet ...
constexpr size_t kMaxEarlyBytes = 64 << 20;  // ... and what they bring
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

/// Before each offer, and before data.
struct TcpMesh::Header {
  enum Type : uint32_t { offer, data } type{};
  OperationKey::Channel channel{};  // as its sender sees it
  uint64_t group = 0, sequence = 0;
  int64_t bytes = 0;     // offer: of the collective; data: that follow
  int64_t want = 0;      // offer: bytes that its sender wants
  int64_t attached = 0;  // offer: bytes that follow; -1: they have to be asked for
  int32_t kind = 0, root = -1;
};

struct TcpMesh::Outgoing {
  std::array<char, sizeof(Header)> head{};
  int64_t head_bytes = 0;
  const std::byte* data = nullptr;
  int64_t bytes = 0;
  TcpOperation* owner = nullptr;
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
  TcpOperation* into = nullptr;  // whose data comes in now
  Bytes attached;                // or what an offer brings
  std::byte* at = nullptr;
  int64_t left = 0;
  struct Early {
    Header header;
    std::optional<Bytes> attached;
  };
  std::map<OperationKey, Early> early;
  size_t early_bytes = 0;
};

struct TcpMesh::Stranger {
  Socket socket;
  double since = 0;
  std::array<char, sizeof(Hello)> hello{};
  int64_t bytes = 0;
};

TcpMesh::TcpMesh(Job job) : job_(std::move(job)), events_(::epoll_create1(EPOLL_CLOEXEC)) {
  require<CommError>(static_cast<bool>(events_), "no epoll descriptor could be made: {}",
                     std::strerror(errno));
  // A job of one machine need not be seen from others.
  const bool one_machine = std::all_of(job_.hosts.begin(), job_.hosts.end(), is_loopback);
  listener_ = listen_at(one_machine ? "127.0.0.1" : "", 0);
  for (const std::string& port : job_.control.all_gather(std::to_string(port_of(listener_))))
    ports_.push_back(std::stoi(port));
  peers_.resize(ports_.size());
  epoll_event event{.events = EPOLLIN, .data = {.u32 = kListener}};
  ::epoll_ctl(events_.descriptor(), EPOLL_CTL_ADD, listener_.descriptor(), &event);
}

TcpMesh::~TcpMesh() = default;

std::unique_ptr<Communicator> TcpMesh::communicator(const std::vector<int64_t>& ranks) {
  const auto me = std::find(ranks.begin(), ranks.end(), rank());
  MOESAIC_CHECK(me != ranks.end(), "rank {} is not in the group", rank());
  std::string name = std::to_string(num_groups_[ranks]++);
  for (int64_t r : ranks) name += fmt::format(",{}", r);
  for (int64_t r : ranks)
    if (r != rank()) connect(r);
  return make_tcp_communicator(shared_from_this(), fingerprint(name), ranks,
                               static_cast<size_t>(me - ranks.begin()));
}

TcpMesh::Peer& TcpMesh::peer(int64_t rank) {
  auto& found = peers_[static_cast<size_t>(rank)];
  if (!found) found = std::make_unique<Peer>(rank);
  return *found;
}

void TcpMesh::abort(const std::string& message) {
  job_.control.abort(message);
  job_.control.check();
  throw CommError(message);
}

// Connections.

/// The higher rank of two connects.
void TcpMesh::connect(int64_t other) {
  Peer& to = peer(other);
  if (to.state != Peer::absent || other > rank()) return;
  to.socket = start_connect({job_.hosts[static_cast<size_t>(other)], ports_[static_cast<size_t>(other)]});
  to.state = Peer::connecting;
  Outgoing hello;
  const Hello me{kMagic, job_.token, rank()};
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
    const bool ours = hello.magic == kMagic && hello.token == job_.token && hello.rank > rank() &&
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
    abort(fmt::format("{} lost its connection to {}: {}", job_.describe(this->rank()), job_.describe(rank),
                      p.problem));
}

// Operations.

void TcpMesh::post(TcpOperation& operation, const std::vector<int64_t>& ranks, const Offer& offer,
                   const std::vector<Part>& parts) {
  const OperationKey& key = operation.key();
  MOESAIC_CHECK(posted_.emplace(key, &operation).second, "collective number {} was posted twice",
                key.sequence);
  for (size_t p = 0; p < ranks.size(); ++p) {
    if (ranks[p] == rank()) continue;
    const Part& part = parts[p];
    const Header header{.type = Header::offer,
                        .channel = key.channel,
                        .group = key.group,
                        .sequence = key.sequence,
                        .bytes = offer.size,
                        .want = part.want,
                        .attached = part.attached() ? part.send_bytes : -1,
                        .kind = static_cast<int32_t>(offer.kind),
                        .root = static_cast<int32_t>(offer.root)};
    enqueue(ranks[p], header, operation, part.send, std::max<int64_t>(header.attached, 0));
  }
  for (int64_t r : ranks) {
    if (r == rank()) continue;
    Peer& from = peer(r);
    const auto at = from.early.find(key);
    if (at == from.early.end()) continue;
    const Peer::Early early = std::move(at->second);
    from.early.erase(at);
    from.early_bytes -= early.attached ? early.attached->size() : 0;
    operation.on_offer(r, {static_cast<Kind>(early.header.kind), early.header.bytes, early.header.root},
                       early.header.want, early.attached);
  }
}

void TcpMesh::send_data(TcpOperation& operation, int64_t rank, const std::byte* data, int64_t bytes) {
  const OperationKey& key = operation.key();
  const Header header{.type = Header::data,
                      .channel = key.channel,
                      .group = key.group,
                      .sequence = key.sequence,
                      .bytes = bytes};
  enqueue(rank, header, operation, data, bytes);
}

void TcpMesh::forget(TcpOperation& operation) {
  const auto at = posted_.find(operation.key());
  if (at == posted_.end() || at->second != &operation) return;
  posted_.erase(at);
  for (auto& p : peers_) {
    if (!p) continue;
    const bool sends =
        std::any_of(p->out.begin(), p->out.end(), [&](const Outgoing& o) { return o.owner == &operation; });
    if (sends || p->into == &operation) lose(*p, "this rank left a collective that was under way");
  }
}

OperationKey TcpMesh::key_of(const Header& header, int64_t from) const {
  OperationKey key{.group = header.group, .sequence = header.sequence};
  if (header.channel == OperationKey::collective) return key;
  key.channel =
      header.channel == OperationKey::message_out ? OperationKey::message_in : OperationKey::message_out;
  key.other = from;
  return key;
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

void TcpMesh::enqueue(int64_t rank, const Header& header, TcpOperation& owner, const std::byte* data,
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
    bytes_moved_ += static_cast<uint64_t>(sent);
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
    bytes_moved_ += static_cast<uint64_t>(received);
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
  const auto refuse = [&](bool good) {
    if (!good)
      abort(fmt::format("{} sent data that {} had not asked for", job_.describe(peer.rank),
                        job_.describe(rank())));
  };
  if (header.type == Header::offer) {
    refuse(header.attached >= -1 && header.attached <= kMostAttached);
    peer.left = std::max<int64_t>(header.attached, 0);
    peer.attached.resize(static_cast<size_t>(peer.left));
    peer.at = peer.attached.data();
    return;
  }
  const auto at = posted_.find(key_of(header, peer.rank));
  refuse(header.type == Header::data && at != posted_.end() && at->second->wants(peer.rank, header.bytes));
  peer.into = at->second;
  peer.at = at->second->place_for(peer.rank);
  peer.left = header.bytes;
}

/// A header, and what follows it, are here.
void TcpMesh::on_whole(Peer& peer) {
  if (peer.into != nullptr) return std::exchange(peer.into, nullptr)->on_received(peer.rank);
  Header header;
  std::memcpy(&header, peer.head.data(), sizeof header);
  std::optional<Bytes> attached;
  if (header.attached >= 0) attached = std::move(peer.attached);
  peer.attached.clear();
  const OperationKey key = key_of(header, peer.rank);
  if (const auto at = posted_.find(key); at != posted_.end())
    return at->second->on_offer(peer.rank, {static_cast<Kind>(header.kind), header.bytes, header.root},
                                header.want, attached);
  peer.early_bytes += attached ? attached->size() : 0;
  if (peer.early.size() >= kMaxEarly || peer.early_bytes > kMaxEarlyBytes)
    abort(fmt::format("{} is {} collectives ahead of {}, which has called none of them",
                      job_.describe(peer.rank), peer.early.size() + 1, job_.describe(rank())));
  peer.early.emplace(key, Peer::Early{header, std::move(attached)});
}

}  // namespace moesaic::tcp
