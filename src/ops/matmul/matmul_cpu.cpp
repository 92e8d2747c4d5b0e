#include "ops/matmul/matmul_bodies.h"

#include "ops/matmul/product.h"

namespace moesaic::ops {

void matmul_cpu(const OpContext& c, const Matmul& args) {
  const Shape &a = c.shape(args.a), &y = c.shape(args.c);
  const int64_t m = y.rows(), n = y[-1], k = args.trans_a ? a.rows() : a[-1];
  with_float(c.dtype(args.a), [&](auto a_zero) {
    with_float(c.dtype(args.b), [&](auto b_zero) {
      with_float(c.dtype(args.c), [&](auto c_zero) {
        using C = decltype(c_zero);
        product(args.trans_a, args.trans_b, m, n, k, c.in<decltype(a_zero)>(args.a),
                c.in<decltype(b_zero)>(args.b), args.accumulate,
                args.accumulate ? c.inout<C>(args.c) : c.out<C>(args.c));
      });
    });
  });
}

}  // namespace moesaic::ops
