#include <cuda_runtime_api.h>

#include "ops/matmul/gemm_cuda.h"
#include "ops/matmul/matmul_bodies.h"
#include "ops/matmul/mixed_cuda.h"

// Operands of different types: the FP32 one is the exact sum of three BF16 matrices, so the product is three BF16 products,
// summed in FP32. The router's gradients are such products; widening the BF16 operand instead would write it in FP32 and
// multiply without tensor cores.
namespace moesaic::ops {
namespace {

struct Call {
  int64_t m, n, k;
  GemmOperand a, b;
  bool accumulate;
  void* out;
  DType out_type;
  std::byte* scratch;
};

void gemm(const OpContext& c, const Call& call) {
  gemm_cuda(c, call.m, call.n, call.k, call.a, call.b, call.accumulate, call.out, call.out_type, call.scratch,
            kGemmWorkspace);
}

/// To f32: one product per part, each added to what the one before left.
void add_parts(const OpContext& c, Call call) {
  GemmOperand& wide = call.a.type == DType::f32 ? call.a : call.b;
  const int64_t rows = &wide == &call.a ? call.m : call.n, count = rows * call.k;
  auto* parts = reinterpret_cast<bf16*>(call.scratch + kGemmWorkspace);
  write_parts(static_cast<cudaStream_t>(c.stream()), DType::f32, 1, count, wide.data, count, count, parts);
  wide.type = DType::bf16;
  for (int64_t p = 0; p < kBf16Parts; ++p) {
    wide.data = parts + p * count;
    gemm(c, call);
    call.accumulate = true;
  }
}

/// The operand three times as long along k: `outer` rows or columns of 3 k. Returns what is behind it.
bf16* stack(const OpContext& c, int64_t outer, int64_t k, bool k_is_row, GemmOperand& x, bf16* to) {
  const auto stream = static_cast<cudaStream_t>(c.stream());
  if (k_is_row)
    write_parts(stream, x.type, k, outer, x.data, outer, k * outer, to);
  else
    write_parts(stream, x.type, outer, k, x.data, kBf16Parts * k, k, to);
  x.data = to;
  x.type = DType::bf16;
  return to + round_up(kBf16Parts * k * outer, 128);
}

/// To bf16: one product over the parts side by side, since out is to be rounded only once.
void stack_parts(const OpContext& c, Call call) {
  bf16* at = reinterpret_cast<bf16*>(call.scratch + kGemmWorkspace);
  at = stack(c, call.m, call.k, call.a.transposed, call.a, at);
  stack(c, call.n, call.k, !call.b.transposed, call.b, at);
  call.k *= kBf16Parts;
  gemm(c, call);
}

}  // namespace

void matmul_cuda(const OpContext& c, const Matmul& args) {
  const Shape &a = c.shape(args.a), &y = c.shape(args.c);
  const DType a_type = c.dtype(args.a), b_type = c.dtype(args.b), out_type = c.dtype(args.c);
  const int64_t m = y.rows(), n = y[-1], k = args.trans_a ? a.rows() : a[-1];
  std::byte* out = args.accumulate ? c.inout_bytes(args.c) : c.out_bytes(args.c);
  if (m == 0 || n == 0) return;
  if (!args.scratch)
    return plain_matmul(static_cast<cudaStream_t>(c.stream()), args.trans_a, args.trans_b, m, n, k,
                        c.in<float>(args.a), c.in<float>(args.b), args.accumulate,
                        reinterpret_cast<bf16*>(out));
  const Call call{m,
                  n,
                  k,
                  {c.in_bytes(args.a), a_type, args.trans_a},
                  {c.in_bytes(args.b), b_type, args.trans_b},
                  args.accumulate,
                  out,
                  out_type,
                  c.out_bytes(args.scratch)};
  if (a_type == b_type) return gemm(c, call);
  if (out_type == DType::f32) return add_parts(c, call);
  stack_parts(c, call);
}

}  // namespace moesaic::ops
