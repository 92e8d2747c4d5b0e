#pragma once
// Dense matrix product, row-major.
#include "device/program.h"

namespace moesaic::ops {

/// c [M, N] = op(a) op(b)  (or c += with accumulate), op = transpose when asked.
///   forward          y [T, N]  = x [T, K] w [N, K]^T        {x, w, y, .trans_b = true}
///   data gradient    dx [T, K] = dy [T, N] w [N, K]         {dy, w, dx}
///   weight gradient  dw [N, K] += dy [T, N]^T x [T, K]      {dy, x, dw, .trans_a = true, .accumulate = true}
/// a, b: f32 or bf16, each its own; c: f32 or bf16. FP32 accumulation, c rounded once (on GPUs, when adding to bf16,
/// the product is rounded as well). Leading dims of a, b,
/// c are rows. Cost: 2 M N K operations; a, b, c once each (c twice when accumulating).
struct Matmul {
  Handle a, b, c;
  bool trans_a = false, trans_b = false, accumulate = false;
  Handle scratch;  // CUDA's working memory; filled in by the op
};
void matmul(Program& g, Stream stream, const Matmul& args);

}  // namespace moesaic::ops
