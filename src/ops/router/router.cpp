#include "ops/router/router.h"

#include "ops/op.h"
#include "ops/router/router_bodies.h"

namespace moesaic::ops {
namespace {

void check_f32(const Program& g, Handle h, const Shape& shape) {
  MOESAIC_CHECK(!h || (g.dtype(h) == DType::f32 && g.shape(h).numel() == shape.numel()),
                "{}: {} is not f32 {}", g.info(h).name, g.shape(h).str(), shape.str());
}

/// What forward and backward share; returns [T, K].
Shape check_router(const Program& g, Handle logits, Handle indices, Handle weights, Handle probs, Handle lse,
                   const RouterConfig& config) {
  const int64_t T = g.shape(logits).rows(), E = g.shape(logits)[-1], K = g.shape(indices)[-1];
  MOESAIC_CHECK(g.device() != DeviceKind::cuda || E <= kMostCudaExperts, "{} experts", E);
  check_f32(g, logits, {T, E});
  check_f32(g, weights, {T, K});
  check_f32(g, probs, {T, E});
  check_f32(g, lse, {T});
  MOESAIC_CHECK(g.dtype(indices) == DType::i32 && g.shape(indices).rows() == T);
  MOESAIC_CHECK(config.num_groups > 0 && E % config.num_groups == 0, "{} experts in {} groups", E,
                config.num_groups);
  const int64_t allowed = config.num_groups_kept * (E / config.num_groups);
  MOESAIC_CHECK(config.num_groups_kept <= config.num_groups && K > 0 && K <= allowed, "{} of {} experts", K,
                allowed);
  MOESAIC_CHECK(!config.softmax_after_topk || config.score == ScoreFunction::softmax);
  MOESAIC_CHECK(config.score != ScoreFunction::sparsemixer ||
                (K == 2 && !config.renormalize && config.num_groups == 1));
  return {T, K};
}

/// Of one token; the terms stand in router.h.
int64_t forward_operations(const RouterForward& args, int64_t E, int64_t K) {
  const RouterConfig& config = args.config;
  if (config.score == ScoreFunction::sparsemixer) return (5 + 8 * K) * E + 2 * K;
  const bool sigmoid = config.score == ScoreFunction::sigmoid;
  const int64_t groups = config.num_groups, kept = config.num_groups_kept;
  const int64_t of_weight = config.softmax_after_topk ? 6 : config.renormalize ? 3 : 1;
  int64_t sum = (sigmoid ? 6 : 5) * E + of_weight * K;
  if (sigmoid && args.lse) sum += 4 * E;
  if (args.bias) sum += E;
  if (config.force_balance) return sum;
  const bool best_two = args.bias && groups < E;
  if (kept < groups) sum += (best_two ? 3 : 1) * E + (best_two ? 1 : 0) * groups + kept * groups;
  return sum + K * kept * (E / groups);
}

int64_t backward_operations(const RouterBackward& args, int64_t E, int64_t K) {
  const RouterConfig& config = args.config;
  const bool balance = static_cast<bool>(args.balance_grad);
  const int64_t z = args.z_grad != 0 ? 4 * E : 0;
  if (config.score == ScoreFunction::sparsemixer) return z + K * (11 * E + 3) + (balance ? 4 * E : 0);
  if (config.softmax_after_topk) return z + 5 * K + (balance ? 4 * E : 0);
  const int64_t weights = (config.renormalize ? 7 : 2) * K;
  if (config.score == ScoreFunction::sigmoid) return z + weights + (balance ? 12 : 7) * E;
  return z + weights + 4 * E;
}

double of_tokens(const Program& g, Handle logits, int64_t operations) {
  return static_cast<double>(g.shape(logits).rows() * operations);
}

}  // namespace

void router_forward(Program& g, Stream stream, const RouterForward& args) {
  check_router(g, args.logits, args.indices, args.weights, args.probs, args.lse, args.config);
  check_f32(g, args.bias, {g.shape(args.logits)[-1]});
  MOESAIC_CHECK(!args.bias || args.config.score != ScoreFunction::sparsemixer);
  g.add({.name = "router_forward",
         .streams = {stream},
         .accesses = accesses({in(args.logits), in(args.bias), out(args.indices), out(args.weights),
                               out(args.probs), out(args.lse)}),
         .cost = {.operations = of_tokens(
                      g, args.logits,
                      forward_operations(args, g.shape(args.logits)[-1], g.shape(args.indices)[-1])),
                  .bytes = bytes_of(
                      g, {args.logits, args.bias, args.indices, args.weights, args.probs, args.lse})},
         .run = body(g, router_forward_cpu, router_forward_cuda, args)});
}

void router_backward(Program& g, Stream stream, const RouterBackward& args) {
  const Shape chosen =
      check_router(g, args.logits, args.indices, args.weights, args.probs, args.lse, args.config);
  check_f32(g, args.d_weights, chosen);
  check_f32(g, args.d_logits, g.shape(args.logits));
  MOESAIC_CHECK(bool(args.balance_grad) == bool(args.scope), "balance_grad and scope come together");
  if (args.scope) {
    MOESAIC_CHECK(g.dtype(args.balance_grad) == DType::f32 &&
                  g.shape(args.balance_grad)[-1] == g.shape(args.logits)[-1]);
    MOESAIC_CHECK(g.dtype(args.scope) == DType::i32 && g.shape(args.scope).numel() == chosen[0]);
  }
  MOESAIC_CHECK(args.z_grad == 0 || args.lse, "the gradient of the z-loss needs lse");
  g.add({.name = "router_backward",
         .streams = {stream},
         .accesses =
             accesses({in(args.logits), in(args.indices), in(args.weights), in(args.probs), in(args.lse),
                       in(args.d_weights), in(args.balance_grad), in(args.scope), out(args.d_logits)}),
         .cost = {.operations = of_tokens(g, args.logits,
                                          backward_operations(args, g.shape(args.logits)[-1], chosen[-1])),
                  .bytes = bytes_of(g, {args.logits, args.indices, args.weights, args.probs, args.lse,
                                        args.d_weights, args.balance_grad, args.scope, args.d_logits})},
         .run = body(g, router_backward_cpu, router_backward_cuda, args)});
}

void router_bias_update(Program& g, Stream stream, const RouterBiasUpdate& args) {
  MOESAIC_CHECK(g.dtype(args.counts) == DType::i32 && g.dtype(args.ok) == DType::i32);
  MOESAIC_CHECK(g.shape(args.ok).numel() == 1);
  check_f32(g, args.bias, g.shape(args.counts));
  g.add({.name = "router_bias_update",
         .streams = {stream},
         .accesses = {in(args.counts), inout(args.bias), in(args.ok)},
         .cost = {.operations = 6 * elements(g, args.counts),
                  .bytes = bytes_of(g, {args.counts, args.bias, args.bias, args.ok})},
         .run = body(g, router_bias_update_cpu, router_bias_update_cuda, args)});
}

}  // namespace moesaic::ops
