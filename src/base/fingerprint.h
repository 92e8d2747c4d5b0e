#pragma once
// A number from a text (FNV-1a, 64 bits): the same on every machine and in every run. Not for content that somebody may want to
// forge.
#include <cstdint>
#include <string_view>

namespace moesaic {

constexpr uint64_t fingerprint(std::string_view text) {
  uint64_t sum = 0xcbf29ce484222325u;
  for (const char c : text) sum = (sum ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return sum;
}

}  // namespace moesaic
