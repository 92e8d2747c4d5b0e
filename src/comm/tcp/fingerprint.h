#pragma once
// A short fingerprint (FNV-1a, 64 bits) by which processes see that they were given different texts. Not for content that
// somebody may want to forge.
#include <cstdint>
#include <string_view>

namespace moesaic {

constexpr uint64_t fingerprint(std::string_view text) {
  uint64_t sum = 0xcbf29ce484222325u;
  for (const char c : text) sum = (sum ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return sum;
}

}  // namespace moesaic
