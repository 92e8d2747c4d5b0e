#include "ops/rmsnorm/rmsnorm.h"

#include <algorithm>

#include "ops/op.h"
#include "ops/rmsnorm/rmsnorm_bodies.h"

namespace moesaic::ops {
namespace {

/// Present handles have the shape and type of `like`.
void check_same(const Program& g, Handle like, std::initializer_list<Handle> handles) {
  for (Handle h : handles)
    MOESAIC_CHECK(!h || (g.shape(h).rows() == g.shape(like).rows() && g.shape(h)[-1] == g.shape(like)[-1] &&
                         g.dtype(h) == g.dtype(like)),
                  "{} {} beside {} {}", g.info(h).name, g.shape(h).str(), g.info(like).name,
                  g.shape(like).str());
}

void check_gain(const Program& g, Handle x, Handle gain, Handle rstd) {
  MOESAIC_CHECK(is_float(g.dtype(x)) && is_float(g.dtype(gain)) && g.shape(gain).numel() == g.shape(x)[-1]);
  MOESAIC_CHECK(!rstd || (g.dtype(rstd) == DType::f32 && g.shape(rstd).numel() == g.shape(x).rows()));
}

}  // namespace

void rmsnorm_forward(Program& g, Stream stream, const RmsNormForward& args) {
  check_same(g, args.x, {args.residual, args.sum, args.y});
  check_gain(g, args.x, args.gain, args.rstd);
  MOESAIC_CHECK(!args.residual || args.sum, "a residual needs somewhere to put the sum");
  MOESAIC_CHECK(!args.bias || (g.dtype(args.bias) == g.dtype(args.gain) &&
                               g.shape(args.bias).numel() == g.shape(args.x)[-1]));
  g.add({.name = "rmsnorm_forward",
         .streams = {stream},
         .accesses = accesses({in(args.x), in(args.residual), in(args.gain), in(args.bias), out(args.sum),
                               out(args.y), out(args.rstd)}),
         .cost = {.operations = (4 + (args.residual ? 1 : 0) + (args.bias ? 3 : 0)) * elements(g, args.x),
                  .bytes = bytes_of(
                      g, {args.x, args.residual, args.gain, args.bias, args.sum, args.y, args.rstd})},
         .run = body(g, rmsnorm_forward_cpu, rmsnorm_forward_cuda, args)});
}

int64_t rmsnorm_backward_blocks(int64_t num_rows, int64_t width) {
  constexpr int64_t kMultiprocessors = 132;
  const int64_t resident = width <= 1024 ? 8 : width <= 2048 ? 4 : width <= 4096 ? 2 : 1;
  return std::min(num_rows, kMultiprocessors * resident);
}

void rmsnorm_backward(Program& g, Stream stream, const RmsNormBackward& given) {
  RmsNormBackward args = given;
  check_same(g, args.x, {args.dy, args.add, args.dx});
  check_gain(g, args.x, args.gain, args.rstd);
  MOESAIC_CHECK(g.dtype(args.dgain) == DType::f32 && g.shape(args.dgain).numel() == g.shape(args.x)[-1]);
  MOESAIC_CHECK(!args.d_bias ||
                (g.dtype(args.d_bias) == DType::f32 && g.shape(args.d_bias).numel() == g.shape(args.x)[-1]));
  args.scratch = scratch(g, "rmsnorm_backward",
                         (args.d_bias ? 8 : 4) * g.shape(args.x)[-1] *
                             rmsnorm_backward_blocks(g.shape(args.x).rows(), g.shape(args.x)[-1]));
  g.add({.name = "rmsnorm_backward",
         .streams = {stream},
         .accesses = accesses({in(args.dy), in(args.x), in(args.gain), in(args.rstd), in(args.add),
                               out(args.dx), inout(args.dgain), inout(args.d_bias), out(args.scratch)}),
         .cost = {.operations = (9 + (args.add ? 1 : 0) + (args.rstd ? 0 : 2) + (args.d_bias ? 5 : 0)) *
                                elements(g, args.x),
                  .bytes = bytes_of(g, {args.dy, args.x, args.gain, args.rstd, args.add, args.dx}) +
                           2 * bytes_of(g, {args.dgain, args.d_bias})},
         .run = body(g, rmsnorm_backward_cpu, rmsnorm_backward_cuda, args)});
}

}  // namespace moesaic::ops
