#include "data/sampler.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/rng.h"

namespace moesaic {
namespace {

constexpr uint64_t kRounds = 8;

}  // namespace

Sampler::Sampler(int64_t num_samples, uint64_t seed) : num_samples_(num_samples), seed_(seed) {
  MOESAIC_CHECK(num_samples >= 1, "{} samples", num_samples);
  half_bits_ =
      std::max(1, (static_cast<int>(std::bit_width(static_cast<uint64_t>(num_samples - 1))) + 1) / 2);
}

int64_t Sampler::sample_at(int64_t position) const {
  MOESAIC_CHECK(position >= 0, "position {}", position);
  const uint64_t stream = stream_of("data.order") + static_cast<uint64_t>(epoch_of(position));
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  auto value = static_cast<uint64_t>(position % num_samples_);
  do {
    uint64_t left = value >> half_bits_, right = value & mask;
    for (uint64_t round = 0; round < kRounds; ++round) {
      const uint64_t mixed = left ^ (random_bits(seed_, stream, (round << 32) | right) & mask);
      left = right;
      right = mixed;
    }
    value = (left << half_bits_) | right;
  } while (value >= static_cast<uint64_t>(num_samples_));
  return static_cast<int64_t>(value);
}

}  // namespace moesaic
