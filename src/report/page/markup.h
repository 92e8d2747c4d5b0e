#pragma once
// Text that becomes part of a page. Everything that comes from a run (names, messages, values) passes through here.
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace moesaic {

/// For element content and quoted attributes: & < > " ' become entities; bytes that are not UTF-8 and control characters
/// (newline and tab apart) become U+FFFD.
std::string html_text(std::string_view text);

/// JSON for a <script type="application/json"> element: what could end the element or open a comment is written with
/// \u escapes. Strings that are not UTF-8 are mended.
std::string json_in_html(const nlohmann::ordered_json& value);

/// At most 5 significant digits, without trailing zeros: "2.1034", "0.00012", "1.5e+09".
std::string short_number(double value);

/// The style class that gives a run its colour: "r2", and "r2 again" (dashed) once all seven have been used.
std::string run_class(size_t run);

}  // namespace moesaic
