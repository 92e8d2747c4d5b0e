// How a grouped product is made on a GPU. With BF16 tensors and widths that are multiples of 8: rows that a map leads to are
// gathered, one small kernel writes the table of groups, and CUTLASS runs all products in one launch. Anything else runs in
// plain FP32 loops.
//
// The floor, for E 8, D 4096, F 14336 and 16384 rows (T 8192, 2 experts per token), at 735 TFLOP/s and 4.2 TB/s:
//   product                     operations   compute   bytes (rows in and out, weights)   memory
//   FC1, h13 = x w13^T          3.85 TFLOP   5.2 ms    0.13 + 0.94 + 1.88 GB              0.70 ms
//   FC2, y = fc2_in w2^T        1.92 TFLOP   2.6 ms    0.47 + 0.13 + 0.94 GB              0.37 ms
//   their data gradients        the same     the same  the same
//   FC1's weight gradient       3.85 TFLOP   5.2 ms    0.94 + 0.13 + 2 x 3.76 GB (f32)    2.04 ms
//   FC2's weight gradient       1.92 TFLOP   2.6 ms    0.13 + 0.47 + 2 x 1.88 GB          1.04 ms
// A gather in front moves 2 x 0.13 GB: 0.06 ms.
#include <algorithm>

#include "ops/grouped_matmul/grouped_gemm_cuda.h"
#include "ops/grouped_matmul/grouped_matmul_bodies.h"

namespace moesaic::ops {
namespace {

const int32_t* map_or_null(const OpContext& c, Handle map) {
  return map ? c.in<int32_t>(map) : nullptr;
}

/// TMA takes addresses of 16 bytes; tensors of a program lie so unless they begin inside another one.
bool are_aligned(std::initializer_list<const void*> addresses) {
  return std::ranges::all_of(addresses,
                             [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; });
}

/// The rows of x in their order: x itself, or gathered to `to`.
const bf16* in_order(cudaStream_t stream, const std::byte* x, const int32_t* map, GroupRows groups,
                     GroupedShape shape, int64_t width, std::byte* to) {
  if (map == nullptr) return reinterpret_cast<const bf16*>(x);
  gather_grouped_rows(stream, x, map, groups, shape, 2 * width, to);
  return reinterpret_cast<const bf16*>(to);
}

}  // namespace

void grouped_matmul_cuda(const OpContext& c, const GroupedMatmul& args) {
  const auto stream = static_cast<cudaStream_t>(c.stream());
  const Shape& w_shape = c.shape(args.w);
  const GroupedShape shape{w_shape[0], c.shape(args.y).rows(), w_shape[1], w_shape[2]};
  const std::byte *x = c.in_bytes(args.x), *w = c.in_bytes(args.w);
  const GroupRows groups = group_rows(c, args);
  const int32_t* map = map_or_null(c, args.x_rows);
  std::byte* y = c.out_bytes(args.y);
  if (c.shape(args.y).numel() == 0 || shape.groups == 0) return;
  const int64_t width = args.trans_w ? shape.k : shape.n;
  std::byte* ordered = args.x_in_order ? c.out_bytes(args.x_in_order) : nullptr;
  if (!args.scratch || !are_aligned({x, w, y, ordered})) {
    if (ordered != nullptr)
      gather_grouped_rows(stream, x, map, groups, shape, width * size_of(c.dtype(args.x)), ordered);
    return plain_grouped(stream, shape, groups, args.trans_w, c.dtype(args.x), x, map, w, c.dtype(args.y), y);
  }
  GroupedScratch scratch(c.out_bytes(args.scratch), shape.groups);
  const bf16* rows = in_order(stream, x, map, groups, shape, width, ordered ? ordered : scratch.gathered);
  fill_table(stream, scratch.table, shape, groups, args.trans_w, rows, reinterpret_cast<const bf16*>(w),
             reinterpret_cast<bf16*>(y));
  if (args.trans_w)
    grouped_gemm_forward(stream, scratch, shape);
  else
    grouped_gemm_data_grad(stream, scratch, shape);
}

void grouped_matmul_weight_grad_cuda(const OpContext& c, const GroupedMatmulWeightGrad& args) {
  const auto stream = static_cast<cudaStream_t>(c.stream());
  const Shape& w_shape = c.shape(args.dw);
  const int64_t num_rows = args.dy_rows ? c.shape(args.dy_rows).numel() : c.shape(args.dy).rows();
  const GroupedShape shape{w_shape[0], num_rows, w_shape[1], w_shape[2]};
  const std::byte *dy = c.in_bytes(args.dy), *x = c.in_bytes(args.x);
  const int32_t *offsets = c.in<int32_t>(args.offsets), *dy_map = map_or_null(c, args.dy_rows),
                *x_map = map_or_null(c, args.x_rows);
  float* dw = args.accumulate ? c.inout<float>(args.dw) : c.out<float>(args.dw);
  if (w_shape.numel() == 0 || num_rows == 0) return;
  if (!args.scratch || !are_aligned({dy, x, dw}))
    return plain_weight_grad(stream, shape, offsets, c.dtype(args.dy), dy, dy_map, c.dtype(args.x), x, x_map,
                             args.accumulate, dw);
  GroupedScratch scratch(c.out_bytes(args.scratch), shape.groups);
  const GroupRows groups{offsets, offsets + 1};
  const bf16* dy_in_order = in_order(stream, dy, dy_map, groups, shape, shape.n, scratch.gathered);
  std::byte* behind = scratch.gathered;
  if (dy_map != nullptr) behind += GroupedScratch::rows_bytes(num_rows, shape.n);
  const bf16* x_in_order = in_order(stream, x, x_map, groups, shape, shape.k, behind);
  fill_weight_grad_table(stream, scratch.table, shape, offsets, dy_in_order, x_in_order, dw);
  if (!args.accumulate) zero_empty_groups(stream, shape, offsets, dw);
  grouped_gemm_weight_grad(stream, scratch, shape, args.expected_rows / static_cast<double>(shape.groups),
                           args.accumulate);
}

}  // namespace moesaic::ops
