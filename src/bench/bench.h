#pragma once
// Benches: what `moesaic bench` prints.
#include <string>

#include "config/config.h"

namespace moesaic {

/// What this machine can do on this run's threads, all ranks together; measured now.
struct Ceilings {
  double copy_bytes_per_s = 0;         // read + written, arrays far larger than the caches
  double matmul_operations_per_s = 0;  // a product of 1024 x 512 x 512
};
Ceilings measure_ceilings(const Config& config);

/// Trains `steps` steps (after a few to warm up) of `config` on random tokens and reports the median step, tokens/s, and for
/// rank 0 the time of each kind of op beside its floor: matmuls at the rate of the same shapes measured alone, the rest
/// by bytes at the measured copy rate.
std::string bench_step(const Config& config, int64_t steps, bool json);

}  // namespace moesaic
