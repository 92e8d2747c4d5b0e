#include "ops/qk_rope/qk_rope.h"

#include <algorithm>

#include "ops/op.h"
#include "ops/qk_rope/qk_rope_bodies.h"

namespace moesaic::ops {
namespace {

/// What forward and backward have in common; `x` and `y` are what is read and written.
template <class Args>
void check(const Program& g, Handle x, Handle y, const Args& args) {
  const int64_t width = (args.num_heads + 2 * args.num_kv_heads) * args.head_dim;
  MOESAIC_CHECK(args.head_dim > 0 && args.head_dim % 2 == 0, "head width {}", args.head_dim);
  MOESAIC_CHECK(g.shape(x)[-1] == width && g.shape(y)[-1] == width && g.shape(x).rows() == g.shape(y).rows(),
                "{} and {} for rows of {}", g.shape(x).str(), g.shape(y).str(), width);
  MOESAIC_CHECK(is_float(g.dtype(x)) && g.dtype(y) == g.dtype(x));
  MOESAIC_CHECK(g.dtype(args.positions) == DType::i32 &&
                g.shape(args.positions).numel() == g.shape(x).rows());
  MOESAIC_CHECK((args.factors.empty() && args.scale == 1) ||
                static_cast<int64_t>(args.factors.size()) == args.head_dim / 2);
  MOESAIC_CHECK(static_cast<bool>(args.gain_q) == static_cast<bool>(args.gain_k));
  for (Handle gain : {args.gain_q, args.gain_k})
    MOESAIC_CHECK(!gain || (is_float(g.dtype(gain)) && g.dtype(gain) == g.dtype(args.gain_q) &&
                            g.shape(gain).numel() == args.head_dim));
}

/// Elements of the query and key heads.
template <class Args>
double turned(const Program& g, Handle x, const Args& args) {
  return static_cast<double>(g.shape(x).rows() * (args.num_heads + args.num_kv_heads) * args.head_dim);
}

}  // namespace

void qk_rope_forward(Program& g, Stream stream, const QkRopeForward& args) {
  check(g, args.qkv, args.out, args);
  g.add({.name = "qk_rope_forward",
         .streams = {stream},
         .accesses =
             accesses({in(args.qkv), in(args.positions), in(args.gain_q), in(args.gain_k), out(args.out)}),
         .cost = {.operations = (args.gain_q ? 7 : 3) * turned(g, args.qkv, args),
                  .bytes = bytes_of(g, {args.qkv, args.positions, args.gain_q, args.gain_k, args.out})},
         .run = body(g, qk_rope_forward_cpu, qk_rope_forward_cuda, args)});
}

int64_t qk_rope_backward_blocks(int64_t num_rows) {
  return std::min<int64_t>(num_rows, 132 * 2);  // what the GPU holds at once
}

void qk_rope_backward(Program& g, Stream stream, const QkRopeBackward& given) {
  QkRopeBackward args = given;
  check(g, args.d_out, args.d_qkv, args);
  if (args.gain_q) {
    MOESAIC_CHECK(g.shape(args.qkv).numel() == g.shape(args.d_out).numel() &&
                  g.dtype(args.qkv) == g.dtype(args.d_out));
    for (Handle d_gain : {args.d_gain_q, args.d_gain_k})
      MOESAIC_CHECK(g.dtype(d_gain) == DType::f32 && g.shape(d_gain).numel() == args.head_dim);
  } else {
    MOESAIC_CHECK(!args.qkv && !args.d_gain_q && !args.d_gain_k, "qkv and gradients of gains go with gains");
  }
  if (args.gain_q)
    args.scratch = scratch(g, "qk_rope_backward",
                           4 * 2 * args.head_dim * qk_rope_backward_blocks(g.shape(args.d_out).rows()));
  g.add({.name = "qk_rope_backward",
         .streams = {stream},
         .accesses =
             accesses({in(args.d_out), in(args.qkv), in(args.positions), in(args.gain_q), in(args.gain_k),
                       out(args.d_qkv), inout(args.d_gain_q), inout(args.d_gain_k), out(args.scratch)}),
         .cost = {.operations = (args.gain_q ? 14 : 3) * turned(g, args.d_out, args),
                  .bytes = bytes_of(g, {args.d_out, args.qkv, args.positions, args.gain_q, args.gain_k,
                                        args.d_qkv}) +
                           2 * bytes_of(g, {args.d_gain_q, args.d_gain_k})},
         .run = body(g, qk_rope_backward_cpu, qk_rope_backward_cuda, args)});
}

}  // namespace moesaic::ops
