#pragma once
// Counter-based random numbers: value = f(seed, stream, index), no state, so a result does not depend on layout, on the
// order of calls, or on which rank asks. Philox 4x32-10 (Salmon et al., SC'11).
#include <cstdint>
#include <string_view>

namespace moesaic {

/// A stream number from a name (FNV-1a), so that each tensor draws its own numbers: "layers.3.attn.q".
uint64_t stream_of(std::string_view name);

/// 64 random bits.
uint64_t random_bits(uint64_t seed, uint64_t stream, uint64_t index);
/// Uniform in [0, 1), 24 bits.
float random_uniform(uint64_t seed, uint64_t stream, uint64_t index);
/// Standard normal (Box-Muller).
float random_normal(uint64_t seed, uint64_t stream, uint64_t index);
/// Uniform in [0, bound), without bias for any practical bound (64-bit multiply-shift). Requires bound > 0.
uint64_t random_below(uint64_t bound, uint64_t seed, uint64_t stream, uint64_t index);

}  // namespace moesaic
