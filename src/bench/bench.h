#pragma once
// Benches: what `moesaic bench` prints.
#include <string>

#include "config/config.h"

namespace moesaic {

/// Trains `steps` steps (after a few to warm up) of `config` on random tokens and reports the machine's ceilings (ceilings.h), the
/// median step, tokens/s, and for rank 0 the time of each kind of op beside its floor.
std::string bench_step(const Config& config, int64_t steps, bool json);

}  // namespace moesaic
