#include "data/tokenizer/charsmap.h"

#include <cstring>

#include "base/error.h"

namespace moesaic {
namespace {

// A unit of darts-clone: a leaf holds a value, any other a label, whether a leaf follows, and an offset.
bool has_leaf(uint32_t unit) {
  return (unit >> 8 & 1) != 0;
}
uint32_t value_of(uint32_t unit) {
  return unit & 0x7FFFFFFF;
}
uint32_t label_of(uint32_t unit) {
  return unit & 0x800000FF;
}
uint32_t offset_of(uint32_t unit) {
  return unit >> 10 << ((unit & 1u << 9) >> 6);
}

}  // namespace

Charsmap::Charsmap(std::string_view blob, const std::string& where) {
  if (blob.empty()) return;
  uint32_t size = 0;
  require<IoError>(blob.size() > sizeof size, "{}: a charsmap of {} bytes", where, blob.size());
  std::memcpy(&size, blob.data(), sizeof size);
  blob.remove_prefix(sizeof size);
  require<IoError>(size < blob.size() && size > 0 && size % sizeof(uint32_t) == 0,
                   "{}: a charsmap whose trie has {} of {} bytes", where, size, blob.size());
  units_.resize(size / sizeof(uint32_t));
  std::memcpy(units_.data(), blob.data(), size);
  replacements_ = blob.substr(size);
}

std::optional<Charsmap::Rule> Charsmap::longest(std::string_view text) const {
  std::optional<Rule> best;
  if (units_.empty()) return best;
  size_t node = offset_of(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    node ^= byte;
    if (node >= units_.size() || label_of(units_[node]) != byte) break;
    const uint32_t unit = units_[node];
    node ^= offset_of(unit);
    if (!has_leaf(unit)) continue;
    if (node >= units_.size()) break;
    const uint32_t value = value_of(units_[node]);
    if (value >= replacements_.size()) break;
    const std::string_view rest = std::string_view(replacements_).substr(value);
    best = Rule{i + 1, rest.substr(0, rest.find('\0'))};
  }
  return best;
}

}  // namespace moesaic
