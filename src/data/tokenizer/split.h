#pragma once
// Cutting pieces at what a pattern matches.
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "data/tokenizer/json_parts.h"
#include "data/tokenizer/pre_tokenizers.h"

namespace moesaic {

/// What becomes of the matches.
enum class SplitBehavior {
  removed,               // they vanish
  isolated,              // each is a piece
  merged_with_previous,  // each belongs to the piece before it
  merged_with_next,      // each belongs to the piece behind it
  contiguous             // neighbouring matches are one piece
};

/// "behavior" of a component, as Hugging Face names them: "Removed", "Isolated", "MergedWithPrevious", ...
SplitBehavior behavior_of(const nlohmann::json& component, const std::string& where);

/// Cuts all pieces. invert: what the pattern does not match counts as the matches.
void split_pieces(Pieces& pieces, const json_parts::Finder& find, SplitBehavior behavior, bool invert);

/// Finds every single character that passes the test.
json_parts::Finder character_finder(bool (*test)(char32_t));

}  // namespace moesaic
