#include "ops/elementwise/elementwise.h"

#include "ops/elementwise/elementwise_bodies.h"
#include "ops/op.h"

namespace moesaic::ops {

void zero(Program& g, Stream stream, Handle y) {
  g.add({.name = "zero",
         .streams = {stream},
         .accesses = {out(y)},
         .cost = {.bytes = bytes_of(g, {y})},
         .run = body(g, zero_cpu, zero_cuda, Zero{y})});
}

void copy(Program& g, Stream stream, Handle x, Handle y) {
  MOESAIC_CHECK(g.shape(x).numel() == g.shape(y).numel(), "{} to {}", g.shape(x).str(), g.shape(y).str());
  MOESAIC_CHECK(g.dtype(x) == g.dtype(y) || (is_float(g.dtype(x)) && is_float(g.dtype(y))));
  g.add({.name = "copy",
         .streams = {stream},
         .accesses = {in(x), out(y)},
         .cost = {.bytes = bytes_of(g, {x, y})},
         .run = body(g, copy_cpu, copy_cuda, Copy{x, y})});
}

void add(Program& g, Stream stream, Handle a, Handle b, Handle y) {
  MOESAIC_CHECK(g.shape(a).numel() == g.shape(y).numel() && g.shape(b).numel() == g.shape(y).numel(),
                "{} and {} to {}", g.shape(a).str(), g.shape(b).str(), g.shape(y).str());
  MOESAIC_CHECK(is_float(g.dtype(a)) && is_float(g.dtype(b)) && is_float(g.dtype(y)));
  g.add({.name = "add",
         .streams = {stream},
         .accesses = {in(a), in(b), out(y)},
         .cost = {.operations = static_cast<double>(g.shape(y).numel()), .bytes = bytes_of(g, {a, b, y})},
         .run = body(g, add_cpu, add_cuda, Add{a, b, y})});
}

void sum_parts(Program& g, Stream stream, const SumParts& args) {
  const int64_t count = g.shape(args.y).numel(), others = div_exact(g.shape(args.others).numel(), count);
  MOESAIC_CHECK(g.shape(args.own).numel() == count && (!args.add || g.shape(args.add).numel() == count));
  MOESAIC_CHECK(args.rank >= 0 && args.rank <= others, "part {} of {}", args.rank, others + 1);
  for (Handle h : {args.own, args.others, args.add})
    MOESAIC_CHECK(!h || g.dtype(h) == g.dtype(args.y), "{} to {}", name_of(g.dtype(h)),
                  name_of(g.dtype(args.y)));
  const int64_t added = others + (args.add ? 1 : 0);
  g.add({.name = "sum_parts",
         .streams = {stream},
         .accesses = accesses({in(args.own), in(args.others), in(args.add), out(args.y)}),
         .cost = {.operations = static_cast<double>(count * added),
                  .bytes = bytes_of(g, {args.own, args.others, args.add, args.y})},
         .run = body(g, sum_parts_cpu, sum_parts_cuda, args)});
}

}  // namespace moesaic::ops
