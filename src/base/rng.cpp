#include "base/rng.h"

#include <array>
#include <cmath>

namespace moesaic {
namespace {

std::array<uint32_t, 4> philox(uint64_t key, uint64_t high, uint64_t low) {
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  std::array<uint32_t, 4> c{static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32),
                            static_cast<uint32_t>(high), static_cast<uint32_t>(high >> 32)};
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c[0], p1 = uint64_t{0xCD9E8D57u} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

}  // namespace

uint64_t stream_of(std::string_view name) {
  uint64_t hash = 14695981039346656037ull;
  for (char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  return hash;
}

uint64_t random_bits(uint64_t seed, uint64_t stream, uint64_t index) {
  const auto c = philox(seed, stream, index);
  return (uint64_t{c[1]} << 32) | c[0];
}

float random_uniform(uint64_t seed, uint64_t stream, uint64_t index) {
  return static_cast<float>(philox(seed, stream, index)[0] >> 8) * 0x1p-24f;
}

float random_normal(uint64_t seed, uint64_t stream, uint64_t index) {
  const auto c = philox(seed, stream, index);
  const double u = (static_cast<double>(c[0]) + 0.5) * 0x1p-32, v = static_cast<double>(c[1]) * 0x1p-32;
  return static_cast<float>(std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586 * v));
}

uint64_t random_below(uint64_t bound, uint64_t seed, uint64_t stream, uint64_t index) {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(random_bits(seed, stream, index)) * bound) >>
                               64);
}

}  // namespace moesaic
