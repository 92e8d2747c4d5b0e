#include "data/tokenizer/split.h"

#include <algorithm>
#include <span>

#include "base/error.h"
#include "base/json.h"
#include "data/tokenizer/utf8.h"

namespace moesaic {
namespace {

/// The parts of one piece in order, matches and what lies between them, as (range, is a match).
template <class Visit>
void for_each_part(TextRange piece, std::span<const TextRange> matches, bool invert, Visit&& visit) {
  size_t at = piece.begin;
  for (const TextRange match : matches) {
    if (match.begin > at) visit(TextRange{at, match.begin}, invert);
    visit(match, !invert);
    at = match.end;
  }
  if (at < piece.end) visit(TextRange{at, piece.end}, invert);
}

void split_piece(TextRange piece, std::span<const TextRange> matches, SplitBehavior behavior, bool invert,
                 std::vector<TextRange>& out) {
  const size_t first = out.size();
  bool was_match = false;
  bool open = false;  // merged_with_next: the last of out waits for its next one
  for_each_part(piece, matches, invert, [&](TextRange part, bool is_match) {
    const bool has_previous = out.size() > first;
    switch (behavior) {
      case SplitBehavior::removed:
        if (!is_match) out.push_back(part);
        break;
      case SplitBehavior::isolated:
        out.push_back(part);
        break;
      case SplitBehavior::merged_with_previous:
        if (is_match && !was_match && has_previous) {
          out.back().end = part.end;
        } else {
          out.push_back(part);
        }
        break;
      case SplitBehavior::merged_with_next:
        // Of several matches in a row, the last is merged.
        if (!is_match && open) {
          out.back().end = part.end;
        } else {
          out.push_back(part);
        }
        open = is_match;
        break;
      case SplitBehavior::contiguous:
        if (has_previous && is_match == was_match) {
          out.back().end = part.end;
        } else {
          out.push_back(part);
        }
        break;
    }
    was_match = is_match;
  });
  const auto is_empty = [](TextRange range) { return range.begin == range.end; };
  out.erase(std::remove_if(out.begin() + static_cast<std::ptrdiff_t>(first), out.end(), is_empty), out.end());
}

}  // namespace

SplitBehavior behavior_of(const nlohmann::json& component, const std::string& where) {
  const std::string name = string_member(component, "behavior", where);
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  json_parts::refuse("split behavior", name, where);
}

void split_pieces(Pieces& pieces, const json_parts::Finder& find, SplitBehavior behavior, bool invert) {
  pieces.next.clear();
  for (const TextRange range : pieces.ranges) {
    pieces.found.clear();
    find(pieces.text, range, pieces.found);
    split_piece(range, pieces.found, behavior, invert, pieces.next);
  }
  pieces.ranges.swap(pieces.next);
}

json_parts::Finder character_finder(bool (*test)(char32_t)) {
  return [test](std::string_view text, TextRange range, std::vector<TextRange>& found) {
    for (size_t at = range.begin; at < range.end;) {
      const utf8::Character c = utf8::character_at(text, at);
      if (test(c.code)) found.push_back({at, at + c.length});
      at += c.length;
    }
  };
}

}  // namespace moesaic
