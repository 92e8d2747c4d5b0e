#pragma once
// Kernels around cuBLASLt's products: operands of different types, and types that the library has no product for.
#include <cuda_runtime_api.h>

#include "base/dtype.h"

namespace moesaic::ops {

/// An FP32 number is the sum of this many BF16 numbers: 8 bits of its 24-bit significand each.
inline constexpr int64_t kBf16Parts = 3;

/// Writes the three BF16 parts of x [rows, cols] (f32), or three copies of it (bf16). Element (row, col) of part p lands at
/// parts[p * part_stride + row * row_stride + col].
void write_parts(cudaStream_t stream, DType type, int64_t rows, int64_t cols, const void* x,
                 int64_t row_stride, int64_t part_stride, void* parts);

/// out [m, n] (bf16) = op(a) op(b), or +=, for f32 operands; op(a) [m, k]. Slow.
void plain_matmul(cudaStream_t stream, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k,
                  const float* a, const float* b, bool accumulate, bf16* out);

}  // namespace moesaic::ops
