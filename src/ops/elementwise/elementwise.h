#pragma once
// The few plain element-wise ops. Cost: each tensor once, one operation per element added.
#include "device/program.h"

namespace moesaic::ops {

/// y = 0.
void zero(Program& g, Stream stream, Handle y);
/// y = x, of the same type or converting f32 <-> bf16 (round to nearest even); the same number of elements.
void copy(Program& g, Stream stream, Handle x, Handle y);
/// y = a + b, elementwise; f32 or bf16 each; FP32 sum, one rounding. y may be a or b.
void add(Program& g, Stream stream, Handle a, Handle b, Handle y);

}  // namespace moesaic::ops
