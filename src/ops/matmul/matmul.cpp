#include "ops/matmul/matmul.h"

#include "ops/matmul/matmul_cpu.h"
#include "ops/op.h"

namespace moesaic::ops {

void matmul(Program& g, Stream stream, const Matmul& args) {
  const Shape &a = g.shape(args.a), &b = g.shape(args.b), &c = g.shape(args.c);
  const int64_t m = args.trans_a ? a[-1] : a.rows(), k = args.trans_a ? a.rows() : a[-1];
  const int64_t n = args.trans_b ? b.rows() : b[-1];
  MOESAIC_CHECK(k > 0 && (args.trans_b ? b[-1] : b.rows()) == k, "{} times {}", a.str(), b.str());
  MOESAIC_CHECK(c.rows() == m && c[-1] == n, "{} for a product of {} x {}", c.str(), m, n);
  MOESAIC_CHECK(is_float(g.dtype(args.a)) && is_float(g.dtype(args.b)) && is_float(g.dtype(args.c)));
  const double c_bytes = bytes_of(g, {args.c});
  g.add(
      {.name = "matmul",
       .streams = {stream},
       .accesses = {in(args.a), in(args.b), args.accumulate ? inout(args.c) : out(args.c)},
       .cost = {.work = Work::matmul,
                .operations = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k),
                .bytes = bytes_of(g, {args.a, args.b}) + (args.accumulate ? 2 : 1) * c_bytes},
       .run = body(g, matmul_cpu, args)});
}

}  // namespace moesaic::ops
