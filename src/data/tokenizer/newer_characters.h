#pragma once
// Characters that the PCRE2 of Debian 12 does not know, as it is older than the Unicode of Oniguruma.
#include <string_view>

namespace moesaic {

/// Items of a PCRE2 class: the characters that Unicode 15 and 16 added to a category ("L", "Nd", ...), a script
/// ("sc:Han") or the word characters ("word"). Empty for a category that is not kept here: rare ones, whose new
/// characters count as unassigned.
std::string_view newer_characters(std::string_view category);

}  // namespace moesaic
