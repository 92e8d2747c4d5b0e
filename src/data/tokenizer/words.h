#pragma once
// Text whose spaces are written as U+2581, cut into words where no merge can reach across.
#include <string_view>
#include <vector>

#include "data/tokenizer/merge_table.h"
#include "data/tokenizer/word_cache.h"

namespace moesaic {

inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581

/// What turning words into ids needs of its own, per thread.
struct WordScratch {
  WordCache cache;
  MergeTable::Scratch merge;
  std::vector<int32_t> symbols, ids;

  /// Appends the ids of `word`: those remembered, or those of the vector that make() gives, which are then remembered.
  template <class F>
  void append(std::string_view word, std::vector<int32_t>& to, const F& make) {
    if (word.size() <= WordCache::kMaxWord) {
      if (const auto known = cache.find(word); !known.empty()) {
        to.insert(to.end(), known.begin(), known.end());
        return;
      }
    }
    const std::vector<int32_t>& made = make();
    cache.put(word, made);
    to.insert(to.end(), made.begin(), made.end());
  }
};

/// A merge that makes cutting wrong: its left side ends in something else than U+2581, its right side begins with
/// it. Symbols to the left of such a place end in what the text has there, and those to the right begin with
/// U+2581: if no merge is of that kind, none can ever join the two.
inline bool joins_words(std::string_view left, std::string_view right) {
  return !left.ends_with(kSpaceMark) && right.starts_with(kSpaceMark);
}

/// Calls visit(word) for the parts of text, in order: each but the first begins with U+2581, and has U+2581 nowhere
/// behind another character.
template <class Visit>
void for_each_word(std::string_view text, Visit&& visit) {
  size_t begin = 0;
  for (size_t at = text.find(kSpaceMark); at != std::string_view::npos;
       at = text.find(kSpaceMark, at + kSpaceMark.size())) {
    const bool in_run = at >= kSpaceMark.size() && text.substr(0, at).ends_with(kSpaceMark);
    if (in_run || at == begin) continue;
    visit(text.substr(begin, at - begin));
    begin = at;
  }
  if (begin < text.size()) visit(text.substr(begin));
}

}  // namespace moesaic
