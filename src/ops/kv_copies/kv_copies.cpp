#include "ops/kv_copies/kv_copies.h"

#include "ops/kv_copies/kv_copies_bodies.h"
#include "ops/op.h"

namespace moesaic::ops {

void sum_kv_copies(Program& g, Stream stream, const SumKvCopies& args) {
  const auto &x = g.shape(args.x), &y = g.shape(args.y);
  MOESAIC_CHECK(x[-1] == (args.num_heads + 2 * args.num_kv_heads * args.num_copies) * args.head_dim);
  MOESAIC_CHECK(y[-1] == (args.num_heads + 2 * args.num_kv_heads) * args.head_dim && x.rows() == y.rows());
  MOESAIC_CHECK(g.dtype(args.x) == g.dtype(args.y));
  g.add({.name = "sum_kv_copies",
         .streams = {stream},
         .accesses = {in(args.x), out(args.y)},
         .cost = {.operations = static_cast<double>(x.numel() - y.numel()),
                  .bytes = bytes_of(g, {args.x, args.y})},
         .run = body(g, sum_kv_copies_cpu, sum_kv_copies_cuda, args)});
}

}  // namespace moesaic::ops
