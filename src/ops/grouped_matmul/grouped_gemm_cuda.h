#pragma once
// The CUDA pieces of grouped products. All enqueue and return.
#include <cuda_runtime_api.h>

#include "base/dtype.h"
#include "ops/grouped_matmul/grouped_matmul_bodies.h"
#include "ops/grouped_matmul/grouped_scratch.h"

namespace moesaic::ops {

/// Sorted rows of a group and the weights: which is which operand of out = a b.
struct GroupedShape {
  int64_t groups, num_rows, n, k;  // weights [groups, n, k]; num_rows: bound of the rows (R)
};

/// Copies rows map[r] of x to row r of `to`, for the rows r of groups. row_bytes: even; fast where rows lie at 16 bytes.
void gather_grouped_rows(cudaStream_t stream, const void* x, const int32_t* map, GroupRows rows,
                         GroupedShape shape, int64_t row_bytes, void* to);

/// Fills the table for y [R, n] = x w^T (trans_w) or y [R, k] = x w.
void fill_table(cudaStream_t stream, const GroupTable& table, GroupedShape shape, GroupRows rows,
                bool trans_w, const bf16* x, const bf16* w, bf16* y);
/// dw of groups without rows = 0 (a product of nothing is not run).
void zero_empty_groups(cudaStream_t stream, GroupedShape shape, const int32_t* offsets, float* dw);
/// Fills the table for dw (+)= dy^T x.
void fill_weight_grad_table(cudaStream_t stream, const GroupTable& table, GroupedShape shape,
                            const int32_t* offsets, const bf16* dy, const bf16* x, float* dw);

/// The products of a table, by CUTLASS on tensor cores: BF16 operands with n and k multiples of 8, FP32 accumulation.
/// Forward and data gradient write BF16; the weight gradient writes FP32, or adds to it. rows_of_a_group: about, for the choice
/// of tiles.
void grouped_gemm_forward(cudaStream_t stream, const GroupedScratch& scratch, GroupedShape shape);
void grouped_gemm_data_grad(cudaStream_t stream, const GroupedScratch& scratch, GroupedShape shape);
void grouped_gemm_weight_grad(cudaStream_t stream, const GroupedScratch& scratch, GroupedShape shape,
                              double rows_of_a_group, bool accumulate);

/// The same products in plain FP32 loops, for every width and type. Slow.
void plain_grouped(cudaStream_t stream, GroupedShape shape, GroupRows rows, bool trans_w, DType type,
                   const void* x, const int32_t* x_rows, const void* w, DType out_type, void* y);
void plain_weight_grad(cudaStream_t stream, GroupedShape shape, const int32_t* offsets, DType dy_type,
                       const void* dy, const int32_t* dy_rows, DType x_type, const void* x,
                       const int32_t* x_rows, bool accumulate, float* dw);

}  // namespace moesaic::ops
