#include "ops/attention/attention.h"

#include "ops/attention/attention_bodies.h"
#include "ops/op.h"

namespace moesaic::ops {
namespace {

/// What both directions share: checks o-like and lse-like tensors against qkv and returns B S^2 H A.
template <class Args>
double check(const Program& g, const Args& args, std::initializer_list<Handle> outputs) {
  const Shape& qkv = g.shape(args.qkv);
  const int64_t H = args.num_heads, G = args.num_kv_heads, A = args.head_dim;
  MOESAIC_CHECK(qkv.num_dims() == 3 && G > 0 && H % G == 0 && A > 0, "{} heads over {} of width {}", H, G, A);
  const int64_t B = qkv[0], S = qkv[1];
  MOESAIC_CHECK(qkv[2] == (H + 2 * G) * A, "qkv {} with {} and {} heads of width {}", qkv.str(), H, G, A);
  for (Handle h : outputs)
    MOESAIC_CHECK(g.dtype(h) == g.dtype(args.qkv) && g.shape(h).numel() == B * S * H * A, "{} {}",
                  g.info(h).name, g.shape(h).str());
  MOESAIC_CHECK(is_float(g.dtype(args.qkv)));
  MOESAIC_CHECK(g.dtype(args.lse) == DType::f32 && g.shape(args.lse).numel() == B * H * S);
  MOESAIC_CHECK(!args.doc_start ||
                (g.dtype(args.doc_start) == DType::i32 && g.shape(args.doc_start).numel() == B * S));
  return static_cast<double>(B * S) * static_cast<double>(S * H * A);
}

}  // namespace

void attention_forward(Program& g, Stream stream, const AttentionForward& args) {
  const double products = check(g, args, {args.o});
  AttentionForward with_scratch = args;
  if (g.device() == DeviceKind::cuda)
    with_scratch.scratch = scratch(g, "attention_forward", attention_forward_scratch(g, args));
  g.add({.name = "attention_forward",
         .streams = {stream},
         .accesses = accesses(
             {in(args.qkv), in(args.doc_start), out(args.o), out(args.lse), out(with_scratch.scratch)}),
         .cost = {.work = Work::attention,
                  .operations = 2 * products,
                  .bytes = bytes_of(g, {args.qkv, args.doc_start, args.o, args.lse}),
                  .m = g.shape(args.qkv)[1],
                  .n = args.num_heads,
                  .k = args.head_dim},
         .run = body(g, attention_forward_cpu, attention_forward_cuda, with_scratch)});
}

void attention_backward(Program& g, Stream stream, const AttentionBackward& args) {
  const double products = check(g, args, {args.o, args.d_o});
  MOESAIC_CHECK(g.dtype(args.d_qkv) == g.dtype(args.qkv) &&
                g.shape(args.d_qkv).numel() == g.shape(args.qkv).numel());
  AttentionBackward with_scratch = args;
  if (g.device() == DeviceKind::cuda)
    with_scratch.scratch = scratch(g, "attention_backward", attention_backward_scratch(g, args));
  g.add({.name = "attention_backward",
         .streams = {stream},
         .accesses = accesses({in(args.d_o), in(args.qkv), in(args.o), in(args.lse), in(args.doc_start),
                               out(args.d_qkv), out(with_scratch.scratch)}),
         .cost = {.work = Work::attention,
                  .operations = 5 * products,
                  .bytes = bytes_of(g, {args.d_o, args.qkv, args.o, args.lse, args.doc_start, args.d_qkv}),
                  .m = g.shape(args.qkv)[1],
                  .n = args.num_heads,
                  .k = args.head_dim,
                  .adds = true},
         .run = body(g, attention_backward_cpu, attention_backward_cuda, with_scratch)});
}

}  // namespace moesaic::ops
