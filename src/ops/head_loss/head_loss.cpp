#include "ops/head_loss/head_loss.h"

#include "ops/bias/row_sums_cuda.h"
#include "ops/head_loss/head_loss_bodies.h"
#include "ops/matmul/gemm_cuda.h"
#include "ops/op.h"

namespace moesaic::ops {

HeadLossScratch head_loss_scratch(const Shape& logits, int64_t num_tokens, bool bf16_gradient,
                                  bool with_d_bias, bool with_losses) {
  HeadLossScratch s{.gradient = kGemmWorkspace};
  s.bias_sums = s.gradient + (bf16_gradient ? round_up(logits.numel() * size_of(DType::bf16), 256) : 0);
  s.losses = s.bias_sums + (with_d_bias ? round_up(row_sums_scratch(logits[0], logits[1]), 256) : 0);
  s.bytes = s.losses + (with_losses ? num_tokens * size_of(DType::f32) : 0);
  return s;
}

void head_loss(Program& g, Stream stream, const HeadLoss& args) {
  const Shape x = g.shape(args.x), w = g.shape(args.w), logits = g.shape(args.logits);
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
  MOESAIC_CHECK(static_cast<bool>(args.d_bias) == (args.bias && with_gradients));
  MOESAIC_CHECK(!args.bias || (g.dtype(args.bias) == g.dtype(args.w) && g.shape(args.bias).numel() == w[0]));
  MOESAIC_CHECK(!args.d_bias || (g.dtype(args.d_bias) == DType::f32 && g.shape(args.d_bias).numel() == w[0]));
  MOESAIC_CHECK(!args.token_loss ||
                (g.dtype(args.token_loss) == DType::f32 && g.shape(args.token_loss).numel() == x.rows()));
  HeadLoss with_scratch = args;
  with_scratch.scratch =
      scratch(g, "head_loss",
              head_loss_scratch(logits, x.rows(), with_gradients && g.dtype(args.x) == DType::bf16,
                                static_cast<bool>(args.d_bias), !args.token_loss)
                  .bytes);
  g.add({.name = "head_loss",
         .streams = {stream},
         .accesses = accesses({in(args.x), in(args.w), in(args.targets), in(args.scale), out(args.logits),
                               inout(args.loss), inout(args.counted), out(args.dx),
                               args.accumulate ? inout(args.dw) : out(args.dw), in(args.bias),
                               args.accumulate ? inout(args.d_bias) : out(args.d_bias), out(args.token_loss),
                               out(with_scratch.scratch)}),
         .cost = {.work = Work::matmul,
                  .operations =
                      (with_gradients ? 6 : 2) * static_cast<double>(x.numel()) * static_cast<double>(w[0]),
                  .bytes = bytes_of(g, {args.x, args.w, args.bias, args.targets, args.scale, args.dx,
                                        args.token_loss}) +
                           2 * bytes_of(g, {args.loss, args.counted}) +
                           (args.accumulate ? 2 : 1) * bytes_of(g, {args.dw, args.d_bias}),
                  .m = x.rows(),
                  .n = w[0],
                  .k = x[-1]},
         .run = body(g, head_loss_cpu, head_loss_cuda, with_scratch)});
}

}  // namespace moesaic::ops
