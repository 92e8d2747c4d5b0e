#include "ops/norm/norm.h"

#include <algorithm>

#include "ops/norm/norm_bodies.h"
#include "ops/op.h"

namespace moesaic::ops {

int64_t reduction_blocks(int64_t count) {
  constexpr int64_t kOfBlock = 256 * 16, kMost = 132 * 6;  // elements; blocks that the GPU holds at once
  return std::clamp<int64_t>(ceil_div(count, kOfBlock), 1, kMost);
}

void sum_of_squares(Program& g, Stream stream, Handle x, Handle out) {
  const Reduction args{
      x, out, scratch(g, "sum_of_squares", kReductionPartBytes * reduction_blocks(g.shape(x).numel()))};
  MOESAIC_CHECK(g.dtype(x) == DType::f32 && g.dtype(out) == DType::f32 && g.shape(out).numel() == 1);
  g.add({.name = "sum_of_squares",
         .streams = {stream},
         .accesses = accesses({in(x), moesaic::out(out), moesaic::out(args.scratch)}),
         .cost = {.operations = 2 * elements(g, x), .bytes = bytes_of(g, {x, out})},
         .run = body(g, sum_of_squares_cpu, sum_of_squares_cuda, args)});
}

void count_nonfinite(Program& g, Stream stream, Handle x, Handle out) {
  const Reduction args{
      x, out, scratch(g, "count_nonfinite", kReductionPartBytes * reduction_blocks(g.shape(x).numel()))};
  MOESAIC_CHECK(g.dtype(x) == DType::f32 && g.dtype(out) == DType::i32 && g.shape(out).numel() == 1);
  g.add({.name = "count_nonfinite",
         .streams = {stream},
         .accesses = accesses({in(x), moesaic::out(out), moesaic::out(args.scratch)}),
         .cost = {.operations = 2 * elements(g, x), .bytes = bytes_of(g, {x, out})},
         .run = body(g, count_nonfinite_cpu, count_nonfinite_cuda, args)});
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
         .cost = {.operations = elements(g, args.parts) + elements(g, args.overflow),
                  .bytes = bytes_of(g, {args.parts, args.overflow, args.counted, args.grad_norm,
                                        args.clip_scale, args.ok})},
         .run = body(g, verdict_cpu, verdict_cuda, args)});
}

}  // namespace moesaic::ops
