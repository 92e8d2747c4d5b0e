#pragma once
// One matrix product per local expert, on rows sorted by expert. Group sizes are read on the device: group i
// owns rows offsets[i] .. offsets[i + 1]; groups may be empty; rows from offsets[E_local] on are neither read
// nor written.
#include "device/program.h"

namespace moesaic::ops {

/// y [R, N] = x w[group]^T with w [E_local, N, K] (trans_w, forward), or
/// y [R, K] = x w[group]   with w [E_local, N, K] (data gradient).
/// x: [R, *], or with x_rows i32 [R] (row map) any number of rows: row r of the product reads x row
/// x_rows[r]. offsets: i32 [E_local + 1]. x, w: f32 or bf16, the same; y: f32 or bf16; FP32 accumulation, y
/// rounded once. Bits of a row do not depend on the sizes of the groups (small ones are padded, gemm.h).
/// part, with `split` i32 [E_local], offsets[i] <= split[i] <= offsets[i + 1]: only the rows of each group in front of split[i], or
/// only those from it on, so that one half need not wait for what the other reads, nor, on the same stream,
/// what reads it for the other.
/// x_in_order [R, *], of x's type, with x_rows only: also gets the rows of x in the order of the product, for a later op that
/// wants them so.
/// `expected_rows`: of this product, for the cost (T K when balanced): 2 rows N K operations; x, x_in_order, y and x_rows rows
/// and all of w, offsets and split once.
struct GroupedMatmul {
  enum class Part : uint8_t { all, front, rest };

  Handle x, x_rows, w, offsets, y;
  Handle split, x_in_order;  // optional
  Part part = Part::all;
  bool trans_w = true;
  double expected_rows = 0;
  Handle scratch;  // CUDA's working memory; filled in by the op
};
void grouped_matmul(Program& g, Stream stream, const GroupedMatmul& args);

/// dw [E_local, N, K] += dy[group rows]^T x[group rows], f32; without accumulate dw = it. Empty groups: zero.
/// dy [R, N] and x [R, K], f32 or bf16 each, each optionally through a row map i32 [R].
/// expected_rows: for the cost, and on a GPU for the choice of tiles: 2 rows N K operations; dy, x rows and their maps and all of
/// offsets once, all of dw twice (once without accumulate).
struct GroupedMatmulWeightGrad {
  Handle dy, dy_rows, x, x_rows, offsets, dw;
  bool accumulate = true;
  double expected_rows = 0;
  Handle scratch;  // CUDA's working memory; filled in by the op
};
void grouped_matmul_weight_grad(Program& g, Stream stream, const GroupedMatmulWeightGrad& args);

}  // namespace moesaic::ops
