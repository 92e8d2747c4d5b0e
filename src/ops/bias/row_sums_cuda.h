#pragma once
// The sum over a matrix's rows on the GPU, in a fixed order: the gradient of a bias, also of the head's (ops/head_loss).
#include "device/op_context.h"

namespace moesaic::ops {

/// Blocks that share the rows, and the bytes of the partial sums that each of them leaves.
int64_t row_sums_blocks(int64_t num_rows, int64_t width);
int64_t row_sums_scratch(int64_t num_rows, int64_t width);

/// sums[i] += sum over rows of x[t, i]. x [num_rows, width] f32 or bf16; scratch: of row_sums_scratch() bytes, aligned to a
/// float. Enqueues and returns.
void row_sums_cuda(const OpContext& c, DType type, const void* x, int64_t num_rows, int64_t width,
                   std::byte* scratch, float* sums);

}  // namespace moesaic::ops
