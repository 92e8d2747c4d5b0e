#include "ops/matmul/matmul.h"

#include "ops/matmul/gemm_cuda.h"
#include "ops/matmul/matmul_bodies.h"
#include "ops/op.h"

namespace moesaic::ops {

int64_t matmul_scratch(const Program& g, const Matmul& args) {
  const DType a = g.dtype(args.a), b = g.dtype(args.b), c = g.dtype(args.c);
  if (a == b) return a == DType::f32 && c == DType::bf16 ? 0 : kGemmWorkspace;
  const int64_t wide = g.shape(a == DType::f32 ? args.a : args.b).numel();
  const int64_t parts = c == DType::f32 ? wide : g.shape(args.a).numel() + g.shape(args.b).numel();
  return kGemmWorkspace + 3 * parts * size_of(DType::bf16) + 256;
}

void matmul(Program& g, Stream stream, const Matmul& args) {
  const Shape &a = g.shape(args.a), &b = g.shape(args.b), &c = g.shape(args.c);
  const int64_t m = args.trans_a ? a[-1] : a.rows(), k = args.trans_a ? a.rows() : a[-1];
  const int64_t n = args.trans_b ? b.rows() : b[-1];
  MOESAIC_CHECK(k > 0 && (args.trans_b ? b[-1] : b.rows()) == k, "{} times {}", a.str(), b.str());
  MOESAIC_CHECK(c.rows() == m && c[-1] == n, "{} for a product of {} x {}", c.str(), m, n);
  MOESAIC_CHECK(is_float(g.dtype(args.a)) && is_float(g.dtype(args.b)) && is_float(g.dtype(args.c)));
  const double c_bytes = bytes_of(g, {args.c});
  Matmul with_scratch = args;
  with_scratch.scratch = scratch(g, "matmul", matmul_scratch(g, args));
  g.add(
      {.name = "matmul",
       .streams = {stream},
       .accesses = accesses({in(args.a), in(args.b), args.accumulate ? inout(args.c) : out(args.c),
                             out(with_scratch.scratch)}),
       .cost = {.work = Work::matmul,
                .operations = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k),
                .bytes = bytes_of(g, {args.a, args.b}) + (args.accumulate ? 2 : 1) * c_bytes,
                .m = m,
                .n = n,
                .k = k,
                .adds = args.accumulate && g.dtype(args.c) == DType::f32},
       .run = body(g, matmul_cpu, matmul_cuda, with_scratch)});
}

}  // namespace moesaic::ops
