#include "config/data_blend.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

#include "base/error.h"
#include "config/nearest.h"

namespace moesaic {
namespace {

constexpr std::string_view kBlank = " \t\n\r";

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) + 1 - first);
}

/// The number that text begins with, if a blank follows; else nothing. `rest` becomes what follows.
bool leading_number(std::string_view text, double& number, std::string_view& rest) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const auto length = static_cast<size_t>(end - text.data());
  if (error == std::errc::invalid_argument || length == text.size() ||
      kBlank.find(text[length]) == std::string_view::npos)
    return false;
  if (error != std::errc()) number = HUGE_VAL;
  rest = trimmed(text.substr(length));
  return true;
}

}  // namespace

std::vector<BlendPart> parse_blend(const std::string& text) {
  std::string_view left = trimmed(text), path;
  double weight = 1;
  if (!leading_number(left, weight, path)) return {{1, text}};
  std::vector<BlendPart> parts;
  for (bool more = true; more;) {
    const size_t comma = left.find(',');
    const std::string_view one = trimmed(left.substr(0, comma));
    more = comma != std::string_view::npos;
    if (more) left.remove_prefix(comma + 1);
    require<ConfigError>(
        leading_number(one, weight, path) && !path.empty(),
        "data.train: \"{}\" is no part of a blend: expected \"WEIGHT PATH, WEIGHT PATH, ...\"", excerpt(one));
    require<ConfigError>(std::isfinite(weight) && weight > 0 && weight <= 1e15,
                         "data.train: the weight of {} is {}: expected a number above 0 and at most 1e15",
                         path, weight);
    const bool twice =
        std::any_of(parts.begin(), parts.end(), [&](const BlendPart& p) { return p.path == path; });
    require<ConfigError>(!twice, "data.train names {} twice: give it one weight", path);
    parts.push_back({weight, std::string(path)});
    require<ConfigError>(std::ssize(parts) <= kMaxBlendParts,
                         "data.train blends more than {} token files: join some of them", kMaxBlendParts);
  }
  return parts;
}

}  // namespace moesaic
