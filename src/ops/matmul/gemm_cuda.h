#pragma once
// Dense matrix products on a GPU, by cuBLASLt, for the bodies of ops (matmul, attention, the head).
#include "device/op_context.h"

namespace moesaic::ops {

struct GemmOperand {
  const void* data;
  DType type;
  bool transposed;  // what lies in memory is the transpose of the operand, row-major
};

/// Bytes of device memory that a call works in, at least.
inline constexpr int64_t kGemmWorkspace = 32 << 20;

/// out [m, n] = op(a) op(b), or out += with accumulate; row-major without gaps; FP32 accumulation, out rounded once. op(a)
/// is [m, k], op(b) is [k, n]; k > 0; nothing happens when m or n is 0.
///   Types: a and b the same; bf16 to bf16 or f32, or f32 to f32 (in full FP32).
///   Workspace: kGemmWorkspace bytes or more, aligned to 256; the call's own until it is over on the stream.
///   Async: enqueued on c's stream. A thread's first call of a shape asks cuBLASLt for an algorithm (tens of
///   microseconds on the host); later ones find it in the thread's table. A thread serves one GPU.
///   The same shape, types and alignments run the same algorithm: repeats are bit-equal.
void gemm_cuda(const OpContext& c, int64_t m, int64_t n, int64_t k, GemmOperand a, GemmOperand b,
               bool accumulate, void* out, DType out_type, void* workspace, int64_t workspace_bytes);

}  // namespace moesaic::ops
