#include "ops/head_loss/head_loss.h"

#include "ops/head_loss/head_loss_cpu.h"
#include "ops/op.h"

namespace moesaic::ops {

void head_loss(Program& g, Stream stream, const HeadLoss& args) {
  const Shape &x = g.shape(args.x), &w = g.shape(args.w), &logits = g.shape(args.logits);
  MOESAIC_CHECK(is_float(g.dtype(args.x)) && g.dtype(args.w) == g.dtype(args.x));
  MOESAIC_CHECK(w.num_dims() == 2 && w[1] == x[-1], "{} times {}", x.str(), w.str());
  MOESAIC_CHECK(
      g.dtype(args.logits) == DType::f32 && logits.num_dims() == 2 && logits[0] > 0 && logits[1] == w[0],
      "logits {} for {}", logits.str(), w.str());
  MOESAIC_CHECK(g.dtype(args.targets) == DType::i32 && g.shape(args.targets).numel() == x.rows());
  MOESAIC_CHECK(g.dtype(args.loss) == DType::f32 && g.dtype(args.counted) == DType::i32);
  MOESAIC_CHECK(g.shape(args.loss).numel() == 1 && g.shape(args.counted).numel() == 1);
  const bool with_gradients = static_cast<bool>(args.dx);
  MOESAIC_CHECK(static_cast<bool>(args.dw) == with_gradients &&
                static_cast<bool>(args.scale) == with_gradients);
  if (with_gradients) {
    MOESAIC_CHECK(g.dtype(args.dx) == g.dtype(args.x) && g.shape(args.dx).numel() == x.numel());
    MOESAIC_CHECK(g.dtype(args.dw) == DType::f32 && g.shape(args.dw) == w);
    MOESAIC_CHECK(g.dtype(args.scale) == DType::f32 && g.shape(args.scale).numel() == 1);
  }
  MOESAIC_CHECK(!args.token_loss ||
                (g.dtype(args.token_loss) == DType::f32 && g.shape(args.token_loss).numel() == x.rows()));
  g.add({.name = "head_loss",
         .streams = {stream},
         .accesses = accesses({in(args.x), in(args.w), in(args.targets), in(args.scale), out(args.logits),
                               inout(args.loss), inout(args.counted), out(args.dx), inout(args.dw),
                               out(args.token_loss)}),
         .cost = {.work = Work::matmul,
                  .operations =
                      (with_gradients ? 6 : 2) * static_cast<double>(x.numel()) * static_cast<double>(w[0]),
                  .bytes = bytes_of(
                      g, {args.x, args.w, args.targets, args.dx, args.dw, args.dw, args.token_loss})},
         .run = body(g, head_loss_cpu, args)});
}

}  // namespace moesaic::ops
