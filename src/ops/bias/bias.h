#pragma once
// A vector added to every row of a matrix: the bias of a linear layer.
#include "device/program.h"

namespace moesaic::ops {

/// x[t, i] += bias[i]. x [T, N], bias [N]: f32 or bf16 each; FP32 sum, one rounding.
/// Cost: one operation an element, x twice, bias once.
void add_bias(Program& g, Stream stream, Handle x, Handle bias);

/// d_bias[i] += sum over rows of dy[t, i]. dy [T, N] f32 or bf16; d_bias [N] f32. The sum is taken in blocks of 64 rows.
/// Cost: one operation an element, dy once, d_bias twice.
void bias_backward(Program& g, Stream stream, Handle dy, Handle d_bias);

}  // namespace moesaic::ops
