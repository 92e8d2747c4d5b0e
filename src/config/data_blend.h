#pragma once
// The value of data.train: one token file, or a blend of several.
//
//   data.train = "build/data/books"
//   data.train = "0.7 build/data/books, 0.3 build/data/code"
#include <string>
#include <vector>

namespace moesaic {

struct BlendPart {
  double weight = 1;
  std::string path;  // prefix of a token file
};

inline constexpr int64_t kMaxBlendParts = 256;

/// A text that begins with a number and a blank is a blend: "WEIGHT PATH, WEIGHT PATH, ...", where paths hold no comma.
/// Weights are above 0 and of any sum. Any other text is one path. ConfigError naming what is wrong with a blend: its form,
/// a weight, a path twice, or more than kMaxBlendParts parts.
std::vector<BlendPart> parse_blend(const std::string& text);

}  // namespace moesaic
