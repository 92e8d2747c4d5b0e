#pragma once
// Which earlier work must be over before memory may be touched: read after write, write after read, write
// after write. One mechanism, two uses: inside a program the planner asks it about (slot, offset) ranges,
// between programs a device asks it about addresses.
#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "device/stream.h"

namespace moesaic {

/// A point in a stream: its `sequence`-th node (from 1; 0 = nothing) has run.
struct Point {
  Stream stream = Stream::compute;
  uint64_t sequence = 0;
};

/// For each stream, how far it is known to have come.
using Clock = std::array<uint64_t, kNumStreams>;

struct Hazard {
  Point before;    // what must be over
  int32_t tensor;  // the root tensor that `before` touched (the caller's own number)
};

class HazardMap {
 public:
  struct Record {
    Point write;  // last write; sequence 0 = none
    int32_t write_tensor = -1;
    Clock reads{};  // last read of each stream since then
    std::array<int32_t, kNumStreams> read_tensors{};
  };
  using Space = std::map<uint64_t, std::pair<uint64_t, Record>>;  // begin -> (end, record); disjoint, ordered

  /// Appends to `found` what must be over before `stream` reads or writes [begin, end), leaving out its own
  /// past.
  void look(uint64_t begin, uint64_t end, bool write, Stream stream, std::vector<Hazard>& found) const;
  /// Notes an access. A node's accesses are all looked up before the first of them is noted.
  void note(uint64_t begin, uint64_t end, bool write, Point at, int32_t tensor);

  /// Puts a record in place of, or (reads only) merges it into, what is known of [begin, end).
  void merge(uint64_t begin, uint64_t end, const Record& record);
  const Space& space() const { return space_; }
  void clear() { space_.clear(); }

 private:
  /// Cuts intervals at begin and end and fills gaps with empty records; returns the first one at `begin`.
  Space::iterator cut(uint64_t begin, uint64_t end);
  Space space_;
};

}  // namespace moesaic
