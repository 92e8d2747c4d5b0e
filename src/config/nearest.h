#pragma once
// "Did you mean ...?": the known word nearest to one that is not known.
#include <span>
#include <string>
#include <string_view>

namespace moesaic {

/// The known word with the fewest single-character insertions, deletions and changes from `word`; the first
/// of equals. Empty when even that one differs in more than half of the longer word's characters.
std::string_view nearest(std::string_view word, std::span<const std::string_view> known);

/// Text from outside, made fit for a message: at most 64 bytes, control bytes as '?'.
std::string excerpt(std::string_view text);

}  // namespace moesaic
