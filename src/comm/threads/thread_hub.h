#pragma once
// Where the thread ranks of one group meet. Collective number q uses cell q mod kCells of each rank: a rank
// posts its buffers there, waits until all have, pulls what it needs straight from the others' memory, says
// so, and is complete when all others have pulled from it. No locks: each cell is written by one rank and
// read by the others in turn. On GPUs the ranks' host threads meet like this when they enqueue; "posted" and "pulled"
// are then marks on their streams (mover.h), which the others' streams wait for.
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/threads/mover.h"

namespace moesaic {

class ThreadWorld;

/// What a rank offers to the others in one collective.
struct Offer {
  const char* kind = "";             // which collective, to catch ranks that disagree
  int64_t size = 0;                  // its bytes, for the same
  const std::byte* data = nullptr;   // what is sent
  const int32_t* offsets = nullptr;  // all_to_all_rows: send_offsets
  int64_t root = -1;                 // broadcast: its root
  void* ready = nullptr;             // mark behind which `data` may be read; set by the hub
};

class ThreadHub {
 public:
  /// `pull(offers)` does a rank's part once everybody's offer is there.
  using Pull = std::function<void(const std::vector<Offer>& offers)>;

  ThreadHub(ThreadWorld& world, std::vector<int64_t> ranks);

  int64_t size() const { return static_cast<int64_t>(ranks_.size()); }
  /// Takes over a member's mover: its marks may be waited for after that member has gone.
  Mover& keep(std::unique_ptr<Mover> mover);
  /// Collective number call.sequence (from 1) of rank `rank` of the group. `mover` is this rank's.
  Pending collective(int64_t rank, const Call& call, Offer offer, Mover& mover, Pull pull);
  /// A message (from 1 for each pair); pull = null at the sender.
  Pending message(int64_t source, int64_t destination, bool sender, const Call& call, Offer offer,
                  Mover& mover, Pull pull);

 private:
  static constexpr uint64_t kCells = 64;
  struct alignas(64) Cell {
    std::atomic<uint64_t> posted{0};    // number of the collective whose offer is here
    std::atomic<uint64_t> finished{0};  // number of the last collective whose pull is over
    std::atomic<uint64_t> left{
        0};  // number of the last collective whose marks this rank has seen: cells may be reused
    Offer offer;
    void* pulled = nullptr;  // mark behind this rank's pull
  };
  /// The cells of one meeting of `members` ranks.
  struct Ring {
    explicit Ring(size_t count) : cells(count * kCells), members(count) {}
    Cell& at(uint64_t sequence, size_t member) { return cells[sequence % kCells * members + member]; }
    std::vector<Cell> cells;
    size_t members;
  };
  class Meeting;

  Pending meet(Ring& ring, std::vector<int64_t> global_ranks, size_t me, const Call& call, Offer offer,
               Mover& mover, Pull pull);

  ThreadWorld& world_;
  std::vector<int64_t> ranks_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Mover>> movers_;
  Ring ring_;
  std::vector<std::unique_ptr<Ring>> pairs_;  // [source * size + destination]
};

std::unique_ptr<Communicator> make_thread_communicator(std::shared_ptr<ThreadHub> hub, int64_t rank,
                                                       std::unique_ptr<Mover> mover);

}  // namespace moesaic
