#pragma once
// Where the ranks of one group meet that can read each other's memory: threads of a process, or processes of a machine whose
// GPUs share memory. Collective number q uses cell q mod kCells of each rank: a rank posts its buffers there, waits until all
// have, pulls what it needs straight from the others' memory, says so, and is complete when all others have pulled from it. No
// locks: each cell is written by one rank and read by the others in turn. On GPUs the ranks' hosts meet like this when they
// enqueue; "posted" and "pulled" are then marks on their streams (mover.h), which the others' streams wait for.
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/control.h"
#include "comm/meeting/mover.h"

namespace moesaic {

/// What a rank offers to the others in one collective.
struct Offer {
  const char* kind = "";  // which collective, to catch ranks that disagree; at most kMaxKind letters
  int64_t size = 0;       // its bytes, for the same
  const std::byte* data = nullptr;   // what is sent
  const int32_t* offsets = nullptr;  // all_to_all_rows: send_offsets
  int64_t root = -1;                 // broadcast: its root
};

/// Collectives of a group that may be under way at once.
inline constexpr uint64_t kCells = 64;
inline constexpr size_t kMaxKind = 23;

/// One rank's part in one collective. Holds nothing that only its process understands.
struct alignas(64) Cell {
  std::atomic<uint64_t> posted{0};    // number of the collective whose offer is here
  std::atomic<uint64_t> finished{0};  // number of the last collective whose pull is over
  std::atomic<uint64_t> left{
      0};  // number of the last collective whose marks this rank has seen: cells may be reused
  std::array<char, kMaxKind + 1> kind{};
  int64_t size = 0, root = -1;
  Address data, offsets;
  Mark ready = 0;   // behind which `data` may be read
  Mark pulled = 0;  // behind this rank's pull
};

/// What one member of a group of `size` ranks writes and the others read: cells of its collectives and of its messages to and
/// from each other, and a page of notes for its mover. Lies in zeroed memory of bytes(size), aligned to a cell.
class MemberBoard {
 public:
  static constexpr int64_t kNotesBytes = 8192;
  static int64_t bytes(int64_t size);
  /// `make`: by the member itself, before the others look.
  MemberBoard(std::byte* memory, int64_t size, bool make);

  Cell& collective(uint64_t sequence) const { return cells_[sequence % kCells]; }
  Cell& message(int64_t peer, bool sends, uint64_t sequence) const {
    return cells_[static_cast<uint64_t>(1 + 2 * peer + (sends ? 1 : 0)) * kCells + sequence % kCells];
  }
  std::byte* notes() const { return notes_; }

 private:
  std::byte* notes_;
  Cell* cells_;
};

/// One rank's end of a group.
class MeetingPlace {
 public:
  /// `pull(offers)` does a rank's part once everybody's offer is there; pointers are as this rank reads them.
  using Pull = std::function<void(const std::vector<Offer>& offers)>;

  /// `ranks`: the members' global ranks, of which this is ranks[me]; `boards`: theirs, in memory that `keeps` holds on to. The
  /// mover's marks may be waited for after this rank has gone: `keeps` holds it too. `control` must outlive it.
  MeetingPlace(Control& control, std::vector<int64_t> ranks, size_t me, std::vector<MemberBoard> boards,
               Mover& mover, std::shared_ptr<void> keeps);

  int64_t rank() const { return static_cast<int64_t>(me_); }
  int64_t size() const { return static_cast<int64_t>(ranks_.size()); }
  Mover& mover() { return mover_; }
  /// Collective number call.sequence (from 1).
  Pending collective(const Call& call, Offer offer, Pull pull);
  /// A message to or from member `peer` (numbered from 1 for each way); pull = null at the sender.
  Pending message(int64_t peer, bool sends, const Call& call, Offer offer, Pull pull);

 private:
  class Meeting;
  /// Who takes part: member numbers, and the cell of each.
  struct Party {
    std::vector<size_t> members;
    std::vector<Cell*> cells;
    size_t me;
  };
  Pending meet(Party party, const Call& call, Offer offer, Pull pull);

  Control& control_;
  std::vector<int64_t> ranks_;
  size_t me_;
  std::vector<MemberBoard> boards_;
  Mover& mover_;
  std::shared_ptr<void> keeps_;
};

std::unique_ptr<Communicator> make_meeting_communicator(MeetingPlace place);

}  // namespace moesaic
