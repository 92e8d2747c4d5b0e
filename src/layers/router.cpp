#include "layers/router.h"

#include <cmath>

#include "comm/collectives.h"
#include "ops/balance/balance.h"
#include "ops/matmul/matmul.h"
#include "ops/router/router.h"

namespace moesaic {
namespace {

constexpr Stream kCompute = Stream::compute, kComm = Stream::comm;

int64_t num_balance_groups(const LayerSpec& s) {
  return s.balance.expert_groups > 0 ? s.balance.expert_groups : s.model.num_experts;
}

/// Statistics of the scopes, summed over the ranks that share them, and the loss and gradient that follow.
void record_balance(Pass& p, Handle indices, Handle probs, const LayerStats& stats) {
  const LayerSpec& s = p.spec;
  const int64_t E = s.model.num_experts;
  const Handle scope = BatchLayout(s).scope(p.g, p.slots);
  Handle counts = p.g.temp("scope_counts", DType::i32, {s.num_scopes, E});
  Handle sums = p.g.temp("scope_prob_sums", DType::f32, {s.num_scopes, E});
  ops::balance_count(
      p.g, kCompute,
      {.indices = indices, .probs = probs, .scope = scope, .counts = counts, .prob_sums = sums});
  ops::add_counts(p.g, kCompute, {.counts = counts, .totals = stats.counts});
  if (s.balance.aux_coef == 0) return;
  if (s.groups.scope->size() > 1) {
    const Handle all_counts = p.g.temp("all_scope_counts", DType::i32, {s.num_scopes, E});
    const Handle all_sums = p.g.temp("all_scope_prob_sums", DType::f32, {s.num_scopes, E});
    comm::all_reduce(p.g, kComm, *s.groups.scope, counts, all_counts, "expert counts");
    comm::all_reduce(p.g, kComm, *s.groups.scope, sums, all_sums, "expert probabilities");
    counts = all_counts, sums = all_sums;
  }
  ops::balance_loss(
      p.g, kCompute,
      {.counts = counts,
       .prob_sums = sums,
       .loss = stats.aux_loss,
       .grad = p.acts.make("balance_grad"),
       .top_k = s.model.top_k,
       .expert_groups = num_balance_groups(s),
       .tokens_per_scope = s.tokens_per_scope,
       .coef = static_cast<float>(s.balance.aux_coef / static_cast<double>(s.scopes_per_step))});
}

/// indices with -1 where an expert (group) is over capacity.
Handle record_capacity(Pass& p, Handle indices, const LayerStats& stats) {
  const LayerSpec& s = p.spec;
  const int64_t K = s.model.top_k, ranks = s.groups.scope->size();
  Handle all = indices;
  if (ranks > 1) {
    all = p.g.temp("scope_indices", DType::i32, {ranks * s.T, K});
    comm::all_gather(p.g, kComm, *s.groups.scope, indices, all, "routing of the scope");
  }
  const BatchLayout batch(s);
  const Handle kept = p.g.temp("kept_indices", DType::i32, {s.T, K});
  const double rows =
      static_cast<double>(s.tokens_per_scope * K) / static_cast<double>(num_balance_groups(s));
  ops::capacity(p.g, kCompute,
                {.all_indices = all,
                 .all_scope = batch.all_scope(p.g, p.slots),
                 .order = batch.all_order(p.g, p.slots),
                 .kept = kept,
                 .dropped = stats.dropped,
                 .first = s.groups.scope->rank() * s.T,
                 .num_experts = s.model.num_experts,
                 .expert_groups = num_balance_groups(s),
                 .num_scopes = s.num_scopes,
                 .capacity = static_cast<int64_t>(std::ceil(s.balance.capacity_factor * rows))});
  return kept;
}

}  // namespace

void add_router_activations(ActivationTable& table, const LayerSpec& s) {
  const int64_t E = s.model.num_experts, K = s.model.top_k;
  table.add({"logits", "T E", {s.T, E}, DType::f32, Keep::always, ""});
  table.add({"probs", "T E", {s.T, E}, DType::f32, Keep::always, ""});
  table.add({"indices", "T K", {s.T, K}, DType::i32, Keep::always, ""});
  table.add({"weights", "T K", {s.T, K}, DType::f32, Keep::always, ""});
  table.add({"router_lse", "T", {s.T}, DType::f32, Keep::always, ""});
  table.add({"balance_grad", "scopes E", {s.num_scopes, E}, DType::f32, Keep::always, ""});
}

Routed router_forward(Pass& p, Handle ln2_out) {
  p.g.segment("router");
  const LayerSpec& s = p.spec;
  const int64_t E = s.model.num_experts;
  const LayerStats stats(p.g, p.slots, E);
  const Handle logits = p.acts.make("logits"), probs = p.acts.make("probs"), lse = p.acts.make("router_lse");
  const Routed routed{p.acts.make("indices"), p.acts.make("weights")};
  ops::matmul(p.g, kCompute,
              {.a = ln2_out, .b = p.weight("moe.router", {E, s.model.hidden}), .c = logits, .trans_b = true});
  const Handle bias = s.model.router.selection_bias
                          ? p.g.external(p.slots.bias, 0, "router_bias", DType::f32, {E})
                          : Handle{};
  ops::router_forward(p.g, kCompute,
                      {.logits = logits,
                       .bias = bias,
                       .indices = routed.indices,
                       .weights = routed.weights,
                       .probs = probs,
                       .lse = lse,
                       .config = s.model.router});
  if (p.training) {
    record_balance(p, routed.indices, probs, stats);
    if (s.balance.z_coef != 0)
      ops::z_loss(p.g, kCompute,
                  {.lse = lse,
                   .loss = stats.z_loss,
                   .coef = static_cast<float>(s.balance.z_coef / static_cast<double>(s.tokens_per_step))});
  }
  if (s.balance.capacity_factor == 0) return routed;
  return {record_capacity(p, routed.indices, stats), routed.weights};
}

void router_backward(Pass& p, Handle ln2_out, Handle d_weights, Handle d_ln2_out) {
  p.g.segment("router backward");
  const LayerSpec& s = p.spec;
  const int64_t E = s.model.num_experts, D = s.model.hidden;
  const bool balance = s.balance.aux_coef != 0;
  const Handle d_logits = p.g.temp("d_logits", DType::f32, {s.T, E});
  ops::router_backward(
      p.g, kCompute,
      {.logits = p.acts.kept("logits"),
       .indices = p.acts.kept("indices"),
       .weights = p.acts.kept("weights"),
       .probs = p.acts.kept("probs"),
       .lse = p.acts.kept("router_lse"),
       .d_weights = d_weights,
       .balance_grad = balance ? p.acts.kept("balance_grad") : Handle{},
       .scope = balance ? BatchLayout(s).scope(p.g, p.slots) : Handle{},
       .d_logits = d_logits,
       .config = s.model.router,
       .z_grad = static_cast<float>(s.balance.z_coef / static_cast<double>(s.tokens_per_step))});
  ops::matmul(p.g, kCompute,
              {.a = d_logits, .b = p.weight("moe.router", {E, D}), .c = d_ln2_out, .accumulate = true});
  ops::matmul(p.g, kCompute,
              {.a = d_logits,
               .b = ln2_out,
               .c = p.grad("moe.router", {E, D}),
               .trans_a = true,
               .accumulate = p.adds});
}

}  // namespace moesaic
