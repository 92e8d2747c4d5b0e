#pragma once
// Which K experts a token goes to, and with which weights. All FP32. Settings: config.h, RouterConfig.
//   s = softmax(logits) over E, or sigmoid(logits);
//   choose the K largest of s (+ bias), ties to the lower expert; with groups: a group's score is the sum of
//   its two best (s + bias) (its best when it has one expert or no bias is used), only the best
//   num_groups_kept groups may be chosen from, the others count as minus infinity (never as zero); weight = s
//   of the chosen (softmax_after_topk: softmax over the K chosen logits), divided by their sum when
//   renormalize (sigmoid: sum + 1e-20), times weight_scale.
//   sparsemixer (K = 2; Liu et al., arXiv 2409.12136, its random parts left out): choose the largest logit l1, weight
//   = its softmax over the logits l with (l1 - l) / max(|l|, l1) <= 2 sparsemixer_eps; then the same among the
//   others; times weight_scale. probs = softmax(logits) over E.
// With force_balance token t takes experts (t K + k) mod E instead, k = 0 .. K-1; weights and all else as above.
// A NaN score counts as minus infinity when choosing: a NaN logit never yields an index outside 0 .. E-1 nor one expert twice.
#include "config/config.h"
#include "device/program.h"

namespace moesaic::ops {

/// logits [T, E] f32; bias [E] f32 optional (selection only). indices [T, K] i32, in falling order of s +
/// bias; weights [T, K] f32. probs [T, E] f32: s, for sigmoid divided by its sum over E (what the balance
/// loss averages). lse [T] f32 optional: log-sum-exp of the logits (z-loss).
/// Cost: operations a token: 5 E (sigmoid 6 E, 4 more with lse), E for a bias; to choose, K passes over the experts of the
/// groups kept (none with force_balance), with groups 3 E and a pass over the groups for each one kept (E when a group's
/// score is its best), and an addition a group; K for the weights (3 K with renormalize, 6 K with softmax_after_topk).
/// sparsemixer: (5 + 8 K) E + 2 K. Of all three ops: every tensor once, the updated bias twice.
struct RouterForward {
  Handle logits, bias, indices, weights, probs, lse;
  RouterConfig config;
};
void router_forward(Program& g, Stream stream, const RouterForward& args);

/// d_logits [T, E] = through the weights (d_weights [T, K])
///   + balance: d_probs[t, e] = balance_grad[scope[t], e] through probs (balance_grad [num_scopes, E] f32,
///   scope i32 [T],
///     both optional together)
///   + z-loss: z_grad * 2 lse[t] * softmax(logits)[t, e]  (z_grad: a number; lse required when it is not 0).
/// indices, weights, probs: of the forward pass, before capacity, so no index is -1. d_weights of a choice
/// that capacity dropped must be 0; its score still takes part in the sum that renormalizes the others.
/// Cost: operations a token: softmax 4 E (with softmax_after_topk only for the balance loss), sigmoid 7 E (5 more with
/// balance); 2 K through the weights (7 K with renormalize, 5 K with softmax_after_topk); 4 E for the z-loss. sparsemixer:
/// K (11 E + 3), 4 E more with balance.
struct RouterBackward {
  Handle logits, indices, weights, probs, lse, d_weights, balance_grad, scope, d_logits;
  RouterConfig config;
  float z_grad = 0;
};
void router_backward(Program& g, Stream stream, const RouterBackward& args);

/// bias[e] += rate * sign(mean count - count[e]), exact in integers: sign(total - count[e] * E). Aux-free
/// balance (DeepSeek-V3). counts [E] i32; nothing happens when ok (i32 [1]) is 0.
/// Cost: 6 operations an expert.
struct RouterBiasUpdate {
  Handle counts, bias, ok;
  float rate = 1e-3f;
};
void router_bias_update(Program& g, Stream stream, const RouterBiasUpdate& args);

}  // namespace moesaic::ops
