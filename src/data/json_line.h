#pragma once
// One string out of a line of JSON lines, faster than a parser that builds a tree: the text is not copied unless it holds
// escapes. Strict all the same: the whole line must be one JSON object (RFC 8259) in UTF-8.
#include <string>
#include <string_view>

namespace moesaic {

/// The string that member `key` of the object `line` holds: a view of `line`, or of `scratch` when escapes had to be
/// replaced. Throws IoError for bad grammar, invalid UTF-8, half a surrogate pair, more than 64 levels, and where the key
/// is missing, occurs twice or holds no string; the message says what and at which byte, but not in which file.
std::string_view json_string(std::string_view line, std::string_view key, std::string& scratch);

}  // namespace moesaic
