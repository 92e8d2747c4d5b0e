#pragma once
// Benches: what `moesaic bench` prints.
#include <string>

#include "config/config.h"

namespace moesaic {

/// What the lines of a bench stand for.
enum class BenchBy {
  op,       // ops of one name
  shape,    // ops of one name and shape
  segment,  // a part of the step: attention, dispatch, experts, ...
};

/// Trains `steps` steps (after a few to warm up) of `config` on random tokens and reports the machine's ceilings (ceilings.h), the
/// median step, tokens/s, and for rank 0 the time of each kind of op beside its floor, and what communication was exposed.
std::string bench_step(const Config& config, BenchBy by, int64_t steps, bool json);

/// Time and rate of each collective between all ranks of the layout, where a rank receives 64 KiB, 256 KiB ... up to `most`
/// bytes from each other one. ConfigError for a single rank.
std::string bench_comm(const Config& config, int64_t most, bool json);

}  // namespace moesaic
