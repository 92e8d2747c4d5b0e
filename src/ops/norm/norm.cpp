#include "ops/norm/norm.h"

#include "ops/norm/norm_cpu.h"
#include "ops/op.h"

namespace moesaic::ops {

void sum_of_squares(Program& g, Stream stream, Handle x, Handle out) {
  const Reduction args{x, out};
  MOESAIC_CHECK(g.dtype(x) == DType::f32 && g.dtype(out) == DType::f32 && g.shape(out).numel() == 1);
  g.add({.name = "sum_of_squares",
         .streams = {stream},
         .accesses = {in(x), moesaic::out(out)},
         .cost = {.operations = 2 * static_cast<double>(g.shape(x).numel()), .bytes = bytes_of(g, {x, out})},
         .run = body(g, sum_of_squares_cpu, args)});
}

void count_nonfinite(Program& g, Stream stream, Handle x, Handle out) {
  const Reduction args{x, out};
  MOESAIC_CHECK(g.dtype(x) == DType::f32 && g.dtype(out) == DType::i32 && g.shape(out).numel() == 1);
  g.add({.name = "count_nonfinite",
         .streams = {stream},
         .accesses = {in(x), moesaic::out(out)},
         .cost = {.bytes = bytes_of(g, {x, out})},
         .run = body(g, count_nonfinite_cpu, args)});
}

void verdict(Program& g, Stream stream, const Verdict& args) {
  for (Handle h : {args.parts, args.grad_norm, args.clip_scale})
    MOESAIC_CHECK(g.dtype(h) == DType::f32, "{}", g.info(h).name);
  for (Handle h : {args.overflow, args.counted, args.ok})
    MOESAIC_CHECK(g.dtype(h) == DType::i32, "{}", g.info(h).name);
  for (Handle h : {args.counted, args.grad_norm, args.clip_scale, args.ok})
    MOESAIC_CHECK(g.shape(h).numel() == 1, "{}", g.info(h).name);
  g.add({.name = "verdict",
         .streams = {stream},
         .accesses = {in(args.parts), in(args.overflow), in(args.counted), out(args.grad_norm),
                      out(args.clip_scale), out(args.ok)},
         .cost = {.bytes = bytes_of(g, {args.parts, args.overflow, args.counted, args.grad_norm,
                                        args.clip_scale, args.ok})},
         .run = body(g, verdict_cpu, args)});
}

}  // namespace moesaic::ops
