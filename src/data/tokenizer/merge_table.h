#pragma once
// Byte-pair encoding proper: neighbours in a row of symbols become one, the pair of lowest rank first, the leftmost
// of equal rank first, until no pair of neighbours has a rank (Sennrich et al., 2016).
#include <cstdint>
#include <optional>
#include <vector>

namespace moesaic {

class MergeTable {
 public:
  struct Merge {
    int32_t rank;    // >= 0
    int32_t result;  // the symbol that the two become
  };
  /// Memory that apply() uses; made once per thread.
  struct Scratch {
    struct Node {
      int32_t symbol, previous, next;  // previous and next are indices, -1 at the ends
    };
    struct Candidate {
      uint64_t order;  // rank, then position of the left symbol
      int32_t left, right;
    };
    std::vector<int32_t> ranks, results;
    std::vector<Node> nodes;
    std::vector<Candidate> heap;
  };

  explicit MergeTable(size_t max_merges);
  /// A pair that is set twice keeps the later merge. Symbols are >= 0. At most max_merges pairs.
  void set(int32_t left, int32_t right, Merge merge);
  /// nullptr for a pair that does not merge; a negative symbol never does.
  const Merge* find(int32_t left, int32_t right) const {
    const uint64_t key = key_of(left, right);
    for (size_t slot = slot_of(key);; slot = (slot + 1) & mask_) {
      const Entry& entry = entries_[slot];
      if (entry.key == key) return &entry.merge;
      if (entry.key == kEmpty) return nullptr;
    }
  }

  /// Merges symbols in place. O(n log n).
  void apply(std::vector<int32_t>& symbols, Scratch& scratch) const;

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  struct Entry {
    uint64_t key = kEmpty;
    Merge merge{};
  };
  static uint64_t key_of(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }
  size_t slot_of(uint64_t key) const {
    return static_cast<size_t>((key ^ key >> 29) * 0x9E3779B97F4A7C15u >> shift_);
  }
  void apply_few(std::vector<int32_t>& symbols, Scratch& scratch) const;
  void apply_many(std::vector<int32_t>& symbols, Scratch& scratch) const;

  std::vector<Entry> entries_;  // open addressing, at most half full
  size_t mask_;
  int shift_;
};

}  // namespace moesaic
