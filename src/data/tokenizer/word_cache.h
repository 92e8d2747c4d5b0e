#pragma once
// The ids of words that were seen before. Text repeats its words, so most are found here.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moesaic {

/// Bounded: when full, it forgets everything. One thread at a time.
class WordCache {
 public:
  static constexpr size_t kMaxWord = 64;  // bytes of a word that is kept

  /// The ids of a word of at most kMaxWord bytes; empty when it is not known. Valid until the next put().
  std::span<const int32_t> find(std::string_view word) const {
    if (entries_.empty()) return {};
    const uint64_t hash = hash_of(word);
    for (size_t slot = hash & (kSlots - 1);; slot = (slot + 1) & (kSlots - 1)) {
      const Entry& entry = entries_[slot];
      if (entry.num_ids == 0) return {};
      if (entry.hash == static_cast<uint32_t>(hash >> 32) &&
          word == std::string_view(words_).substr(entry.word, entry.length))
        return {ids_.data() + entry.ids, entry.num_ids};
    }
  }

  /// Remembers a word that is not known. Words of more than kMaxWord bytes or without ids are not kept.
  void put(std::string_view word, std::span<const int32_t> ids) {
    if (word.size() > kMaxWord || ids.empty() || ids.size() > kMaxIds) return;
    if (entries_.empty() || count_ == kSlots / 2) clear();
    const uint64_t hash = hash_of(word);
    size_t slot = hash & (kSlots - 1);
    while (entries_[slot].num_ids != 0) slot = (slot + 1) & (kSlots - 1);
    entries_[slot] = {static_cast<uint32_t>(hash >> 32), static_cast<uint32_t>(words_.size()),
                      static_cast<uint32_t>(ids_.size()), static_cast<uint16_t>(word.size()),
                      static_cast<uint16_t>(ids.size())};
    words_.append(word);
    ids_.insert(ids_.end(), ids.begin(), ids.end());
    ++count_;
  }

 private:
  static constexpr size_t kSlots = size_t{1} << 17;  // twice the words kept
  static constexpr size_t kMaxIds = 256;
  struct Entry {
    uint32_t hash = 0, word = 0, ids = 0;  // where they begin in words_ and ids_
    uint16_t length = 0, num_ids = 0;      // num_ids 0: a free slot
  };

  static uint64_t hash_of(std::string_view word) { return std::hash<std::string_view>{}(word); }
  void clear() {
    entries_.assign(kSlots, {});
    words_.clear();
    ids_.clear();
    count_ = 0;
  }

  std::vector<Entry> entries_;
  std::string words_;
  std::vector<int32_t> ids_;
  size_t count_ = 0;
};

}  // namespace moesaic
