#include "config/nearest.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace moesaic {
namespace {

constexpr size_t kMaxWord = 64;  // longer than any known word: bounds the work that a hostile key can cause

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, change});
    }
  }
  return row.back();
}

}  // namespace

std::string_view nearest(std::string_view word, std::span<const std::string_view> known) {
  if (word.size() > kMaxWord) return {};
  std::string_view best;
  size_t least = kMaxWord;
  for (const std::string_view candidate : known) {
    const size_t distance = edit_distance(word, candidate);
    if (distance < least && 2 * distance <= std::max(word.size(), candidate.size())) {
      best = candidate;
      least = distance;
    }
  }
  return best;
}

std::string excerpt(std::string_view text) {
  std::string shown(text.substr(0, kMaxWord));
  std::replace_if(
      shown.begin(), shown.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return text.size() > kMaxWord ? shown + "..." : shown;
}

}  // namespace moesaic
