#pragma once
// SwiGLU (Shazeer, 2020) with the token's gate weight multiplied in, before FC2 (BF16 path of the paper). In BF16 everything inside
// is FP32, and each element of y and dh is rounded once.
#include "device/program.h"

namespace moesaic::ops {

/// y[r] = silu(a) * b * weight,  a = h[r, :F], b = h[r, F:].
/// h: [R, 2F], y: [R, F], f32 or bf16. weights: f32, any shape; slots: i32 [R]; weight of row r =
/// weights[slots[r]] (both absent: 1). offsets: i32 [*], its last element = number of rows; rows after it are
/// not touched (absent: all R). expected_rows: for the cost: 5 operations an element of y (6 with weights); h, y, slots and
/// weights of those rows once.
struct SwigluForward {
  Handle h, weights, slots, offsets, y;
  double expected_rows = 0;
};
void swiglu_forward(Program& g, Stream stream, const SwigluForward& args);

/// dh from dy; d_weights (shape of weights) = 0 everywhere, then d_weights[slots[r]] = sum over F of dy
/// silu(a) b for each row (slots are distinct). y, optional: the forward's y again, to the bit, for FC2's
/// weight gradient. Cost: 11 operations an element of dy (4 more with weights, 1 with y); dy, h, dh, y,
/// slots and weights of those rows once, all of d_weights once.
struct SwigluBackward {
  Handle dy, h, weights, slots, offsets, dh, d_weights, y;
  double expected_rows = 0;
};
void swiglu_backward(Program& g, Stream stream, const SwigluBackward& args);

}  // namespace moesaic::ops
