#pragma once
// Steps on random tokens, for what measures them.
#include <cstdint>
#include <span>

#include "config/config.h"
#include "data/loader.h"

namespace moesaic {

/// Uniform random tokens and targets, a function of the positions.
Batch random_batch(std::span<const int64_t> positions, int64_t seq_len, int64_t vocab);

/// Median of `steps` steps after a few to warm up; 0 in a process that does not hold rank 0.
double median_step_seconds(const Config& config, int64_t steps);

}  // namespace moesaic
