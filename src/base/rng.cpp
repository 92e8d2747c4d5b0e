#include "base/rng.h"

#include <cmath>

#include "base/fingerprint.h"
#include "base/philox.h"

namespace moesaic {

uint64_t stream_of(std::string_view name) {
  return fingerprint(name);
}

uint64_t random_bits(uint64_t seed, uint64_t stream, uint64_t index) {
  const PhiloxBlock block = philox(seed, stream, index);
  const auto& c = block.words;
  return (uint64_t{c[1]} << 32) | c[0];
}

float random_uniform(uint64_t seed, uint64_t stream, uint64_t index) {
  return static_cast<float>(philox(seed, stream, index).words[0] >> 8) * 0x1p-24f;
}

float random_normal(uint64_t seed, uint64_t stream, uint64_t index) {
  const PhiloxBlock block = philox(seed, stream, index);
  const auto& c = block.words;
  const double u = (static_cast<double>(c[0]) + 0.5) * 0x1p-32, v = static_cast<double>(c[1]) * 0x1p-32;
  return static_cast<float>(std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586 * v));
}

uint64_t random_below(uint64_t bound, uint64_t seed, uint64_t stream, uint64_t index) {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(random_bits(seed, stream, index)) * bound) >>
                               64);
}

}  // namespace moesaic
