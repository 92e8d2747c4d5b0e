#pragma once
// First values of a parameter: normal numbers from the counter-based generator (base/rng.h), so that they depend on the seed,
// the parameter's name and the element alone, and any rank makes the part it holds.
#include "device/program.h"

namespace moesaic::ops {

/// y[i] = mean + std * normal(seed, stream, first + i), the normal number by Box-Muller in FP64, rounded to FP32.
/// y [N] f32 or bf16. Without remainder a bf16 y is that value rounded to nearest even; with remainder u16 [N] the two are
/// the FP32 value in the storage of ops/optimizer (ties away from zero). Devices may differ in the last bit of an FP32 value
/// (their logarithm and cosine do). Cost: 8 operations an element, 6 of them Box-Muller's (none when std is 0: y = mean);
/// y and remainder once. The bits that the generator makes are integers that no memory holds, and not counted.
struct Initialize {
  Handle y, remainder;
  uint64_t seed = 0, stream = 0;  // stream_of(name)
  int64_t first = 0;
  float mean = 0, std = 0;
};
void initialize(Program& g, Stream stream, const Initialize& args);

}  // namespace moesaic::ops
