#pragma once
// One rank's side of one collective, or of one message.
//
// A rank that posts a collective makes every other member an offer, which says what it calls (so that ranks which disagree are
// found out), how many bytes it wants from that member, and, when they are few, brings what it has for that member. More than
// a few bytes are pulled, as between threads: a member sends them once it has posted the same collective and was asked, straight
// from its buffer. So what can come early is small. The collective is complete when all offers have come, everything wanted
// has arrived, and everything of this rank has gone to the system.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

namespace moesaic::messages {

class Messenger;

using Bytes = std::vector<std::byte>;

/// Which collectives ranks must call together; their names are those of thread ranks.
enum class Kind : int32_t {
  all_gather,
  reduce_scatter,
  all_reduce,
  all_to_all,
  exchange_parts,
  all_to_all_blocks,
  all_to_all_rows,
  broadcast,
  barrier,
  message
};
const char* name_of(Kind kind);

/// What one rank calls; compared between ranks.
struct Offer {
  Kind kind{};
  int64_t size = 0;   // bytes
  int64_t root = -1;  // broadcast: its root
  bool operator==(const Offer&) const = default;
};

/// Bytes that an offer brings along at most.
inline constexpr int64_t kMostAttached = 64 << 10;

/// What passes between this rank and one member.
struct Part {
  const std::byte* send = nullptr;
  int64_t send_bytes = 0;  // that the member may want
  std::byte* receive = nullptr;
  int64_t want = 0;  // bytes that this rank wants; rows may be fewer
  bool attached() const { return send_bytes <= kMostAttached; }
};

/// Finds an operation in a rank: group, whether and which way it is a message, its other end, number.
struct OperationKey {
  uint64_t group = 0;
  enum Channel : uint32_t { collective, message_out, message_in } channel = collective;
  int64_t other = -1;  // global rank
  uint64_t sequence = 0;
  auto operator<=>(const OperationKey&) const = default;
};

class Operation {
 public:
  struct Request {
    OperationKey key;
    std::vector<int64_t> ranks;  // the members' global ranks
    size_t me = 0;               // this rank among them
    Offer offer;
    std::vector<Part> parts;               // [member]
    std::function<void()> finish;          // once all parts have come
    std::unique_ptr<std::byte[]> staging;  // what parts may point into
  };
  Operation(std::shared_ptr<Messenger> messenger, Request request);
  ~Operation();
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  /// Moves what can move; true when the collective is complete.
  bool advance();

  // For the messenger; `rank` is global.
  const OperationKey& key() const { return request_.key; }
  /// `attached`: what the offer brings; nothing when it has to be asked for.
  void on_offer(int64_t rank, const Offer& offer, int64_t want, const std::optional<Bytes>& attached);
  /// Whether `bytes` from a rank are what was asked for, and where to put them.
  bool wants(int64_t rank, int64_t bytes) const;
  std::byte* place_for(int64_t rank) const { return request_.parts[member(rank)].receive; }
  void on_received(int64_t rank);
  void on_queued() { ++unsent_; }
  void on_sent() { --unsent_; }

 private:
  size_t member(int64_t rank) const;
  bool late();
  std::string text(const Offer& offer) const;
  std::vector<int64_t> missing() const;

  std::shared_ptr<Messenger> messenger_;
  Request request_;
  std::vector<char> offered_, receiving_;  // [member]
  size_t num_offers_missing_ = 0, num_receiving_ = 0;
  int64_t unsent_ = 0;
  double looked_;                          // at the clock, last
  uint64_t asked_ = 0, moved_ = 0;         // moved_: the messenger's bytes_moved() then
  bool complete_ = false, waits_ = false;  // waits_: and has said so
};

}  // namespace moesaic::messages
