#pragma once
// The few plain element-wise ops. Cost: each tensor once, one operation per addition.
#include "device/program.h"

namespace moesaic::ops {

/// y = 0.
void zero(Program& g, Stream stream, Handle y);
/// y = x, of the same type or converting f32 <-> bf16 (round to nearest even); the same number of elements.
void copy(Program& g, Stream stream, Handle x, Handle y);
/// y = a + b, elementwise; f32 or bf16 each; FP32 sum, one rounding. y may be a or b.
void add(Program& g, Stream stream, Handle a, Handle b, Handle y);

/// The summing half of a reduce-scatter (comm::exchange_parts is the other): y [N] = the sum of P parts in order, + add.
/// `own` [N] is part number `rank`; `others` [(P - 1) N] holds the rest in order. All of one type, f32 or bf16; FP32 sum, one
/// rounding; `add` optional.
struct SumParts {
  Handle own, others, add, y;
  int64_t rank = 0;
};
void sum_parts(Program& g, Stream stream, const SumParts& args);

}  // namespace moesaic::ops
