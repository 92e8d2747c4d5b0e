#pragma once
// Gradients of key/value heads that several ranks had a copy of (G < n).
#include "device/program.h"

namespace moesaic::ops {

/// x: [T, (H + 2 G C) A], a row is [H query heads | G C key heads | G C value heads], copy c of head g at g C + c.
/// y: [T, (H + 2 G) A]: queries copied, each key/value head the sum of its C copies in order of c. f32 or bf16; FP32
/// sums, one rounding. Cost: C - 1 operations an element of y's keys and values; x and y once.
struct SumKvCopies {
  Handle x, y;
  int64_t num_heads = 0, num_kv_heads = 0, num_copies = 1, head_dim = 0;
};
void sum_kv_copies(Program& g, Stream stream, const SumKvCopies& args);

}  // namespace moesaic::ops
