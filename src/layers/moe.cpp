#include "layers/moe.h"

#include <cmath>

#include "comm/collectives.h"
#include "layers/attention.h"
#include "layers/dispatch.h"
#include "layers/ffn.h"
#include "layers/router.h"
#include "ops/elementwise/elementwise.h"
#include "ops/grouped_matmul/grouped_matmul.h"
#include "ops/rmsnorm/rmsnorm.h"
#include "ops/swiglu/swiglu.h"

namespace moesaic {
namespace {

constexpr Stream kCompute = Stream::compute, kComm = Stream::comm;

void add_ln2_activations(ActivationTable& table, const LayerSpec& s) {
  const int64_t D = s.model.hidden;
  table.add({"ln2_in", "T D", {s.T, D}, s.dtype, Keep::selective, "output projection and residual"});
  table.add({"ln2_rstd", "T", {s.T}, DType::f32, Keep::always, ""});
  table.add({"ln2_out", "T D", {s.T, D}, s.dtype, Keep::none, "RMSNorm of ln2_in"});
}

/// ln2_in = hidden + attn_out, ln2_out = its norm.
Handle open_half(Pass& p, Handle hidden, Handle attn_out, Handle& ln2_in) {
  ln2_in = p.acts.make("ln2_in");
  const Handle ln2_out = p.acts.make("ln2_out");
  ops::rmsnorm_forward(p.g, kCompute,
                       {.x = attn_out,
                        .residual = hidden,
                        .gain = p.weight("ffn.norm", {p.spec.model.hidden}),
                        .sum = ln2_in,
                        .y = ln2_out,
                        .rstd = p.acts.make("ln2_rstd"),
                        .eps = static_cast<float>(p.spec.model.norm_eps),
                        .bias = p.norm_bias("ffn.norm")});
  return ln2_out;
}

Handle rebuilt_ln2_in(Pass& p, Handle hidden) {
  return p.acts.need(
      "ln2_in", [&](Handle x) { ops::add(p.g, kCompute, attention_output_again(p, hidden), hidden, x); });
}

Handle rebuilt_ln2_out(Pass& p, Handle ln2_in) {
  return p.acts.need("ln2_out", [&](Handle x) {
    ops::rmsnorm_forward(p.g, kCompute,
                         {.x = ln2_in,
                          .gain = p.weight("ffn.norm", {p.spec.model.hidden}),
                          .y = x,
                          .eps = static_cast<float>(p.spec.model.norm_eps),
                          .bias = p.norm_bias("ffn.norm")});
  });
}

void close_half_backward(Pass& p, Handle d_ln2_out, Handle ln2_in, Handle d_next, Handle d_ln2_in) {
  ops::rmsnorm_backward(p.g, kCompute,
                        {.dy = d_ln2_out,
                         .x = ln2_in,
                         .gain = p.weight("ffn.norm", {p.spec.model.hidden}),
                         .rstd = p.acts.kept("ln2_rstd"),
                         .add = d_next,
                         .dx = d_ln2_in,
                         .dgain = p.added_grad("ffn.norm", {p.spec.model.hidden}),
                         .eps = static_cast<float>(p.spec.model.norm_eps),
                         .d_bias = p.added_norm_bias_grad("ffn.norm")});
}

struct Experts {
  explicit Experts(Pass& p)
      : El(p.spec.num_local_experts),
        D(p.spec.model.hidden),
        F(p.spec.model.expert_ffn),
        w13(p.weight("experts.w13", {El, 2 * F, D})),
        w2(p.weight("experts.w2", {El, D, F})),
        rows(p.spec.expected_rows()) {}
  int64_t El, D, F;
  Handle w13, w2;
  double rows;
};

using Part = ops::GroupedMatmul::Part;

/// A product of all experts, or its part for this rank's own tokens (front) or the others' (rest).
void product(Pass& p, const Experts& w, const Dispatched& d, Part part, ops::GroupedMatmul args) {
  const double own = 1 / static_cast<double>(p.spec.e);
  args.offsets = d.offsets;
  args.part = part;
  if (part != Part::all) args.split = d.own_ends;
  args.expected_rows = w.rows * (part == Part::all ? 1 : part == Part::front ? own : 1 - own);
  ops::grouped_matmul(p.g, kCompute, args);
}

/// The product with the tokens that the experts received. x, this rank's own tokens, are there before the others have come
/// (recv): their part runs meanwhile.
void product_of_tokens(Pass& p, const Experts& w, const Dispatched& d, Handle x, Handle recv,
                       ops::GroupedMatmul args) {
  const bool in_parts = receives_in_parts(p.spec);
  if (in_parts) {
    args.x = x;
    args.x_rows = d.own_token;
    product(p, w, d, Part::front, args);
  }
  args.x = recv;
  args.x_rows = d.row_recv;
  product(p, w, d, in_parts ? Part::rest : Part::all, args);
}

void fc1(Pass& p, const Experts& w, const Dispatched& d, Handle x, Handle recv, Handle h13) {
  product_of_tokens(p, w, d, x, recv, {.w = w.w13, .y = h13});
}

void activate(Pass& p, const Experts& w, const Dispatched& d, Handle h13, Handle fc2_in) {
  ops::swiglu_forward(p.g, kCompute,
                      {.h = h13,
                       .weights = d.group_weights,
                       .slots = d.row_slot,
                       .offsets = d.offsets,
                       .y = fc2_in,
                       .expected_rows = w.rows});
}

}  // namespace

void add_moe_dense_parameters(ParameterTable& table, const ModelConfig& m, const std::string& prefix) {
  add_norm_parameters(table, m, prefix + "ffn.norm");
  table.add({prefix + "moe.router",
             {m.num_experts, m.hidden},
             Init::normal,
             m.init_std,
             true,
             prefix + "moe.router"});
  if (m.shared_ffn > 0) add_ffn_parameters(table, m, prefix, "shared", m.shared_ffn);
}

void add_expert_parameters(ParameterTable& table, const ModelConfig& m, const std::string& prefix,
                           std::span<const int64_t> experts) {
  const double residual_std = m.init_std / std::sqrt(2.0 * static_cast<double>(m.num_layers));
  const Shape up{m.expert_ffn, m.hidden}, down{m.hidden, m.expert_ffn};
  for (int64_t e : experts)
    for (const char* w : {".w1", ".w3"})
      table.add({fmt::format("{}experts.{}{}", prefix, e, w), up, Init::normal, m.init_std, true,
                 prefix + "experts.w13"});
  for (int64_t e : experts)
    table.add({fmt::format("{}experts.{}.w2", prefix, e), down, Init::normal, residual_std, true,
               prefix + "experts.w2"});
}

void add_moe_activations(ActivationTable& table, const LayerSpec& s) {
  const int64_t D = s.model.hidden, F = s.model.expert_ffn;
  add_ln2_activations(table, s);
  add_router_activations(table, s);
  add_dispatch_activations(table, s);
  if (s.e > 1) table.add({"recv", "N D", {s.max_recv, D}, s.dtype, Keep::none, "dispatch of ln2_out"});
  table.add({"h13", "R 2F", {s.max_rows, 2 * F}, s.dtype, Keep::selective, "FC1 and FC3 of the experts"});
  table.add({"fc2_in", "R F", {s.max_rows, F}, s.dtype, Keep::none, "SwiGLU of h13"});
  if (s.model.shared_ffn > 0) add_ffn_activations(table, s, "shared", s.model.shared_ffn);
}

void moe_forward(Pass& p, Handle hidden, Handle attn_out, Handle next) {
  const LayerSpec& s = p.spec;
  const Experts w(p);
  Handle ln2_in;
  const Handle ln2_out = open_half(p, hidden, attn_out, ln2_in);
  const Routed routed = router_forward(p, ln2_out);
  const Dispatched d = plan_dispatch(p, routed.indices, routed.weights);
  const Handle recv = receive_buffer(s, ln2_out, [&] { return p.acts.make("recv"); });
  send_tokens(p, d, ln2_out, recv, "tokens");

  Handle base = ln2_in;  // what the experts' output is added to
  if (s.model.shared_ffn > 0) {
    p.g.segment("shared expert");  // under the exchange
    const Handle shared = p.temp("shared_out", {s.T, w.D});
    ffn_forward(p, "shared", s.model.shared_ffn, ln2_out, shared);
    base = p.temp("ln2_in_shared", {s.T, w.D});
    ops::add(p.g, kCompute, ln2_in, shared, base);
  }

  p.g.segment("experts");
  const Handle h13 = p.acts.make("h13"), fc2_in = p.acts.make("fc2_in");
  fc1(p, w, d, ln2_out, recv, h13);
  activate(p, w, d, h13, fc2_in);
  const Handle fc2_out = p.temp("fc2_out", {s.max_rows, w.D});
  const auto fc2 = [&](Part part) { product(p, w, d, part, {.x = fc2_in, .w = w.w2, .y = fc2_out}); };
  const bool in_parts = returns_in_parts(s);  // the others' rows return while those of own tokens are made
  fc2(in_parts ? Part::rest : Part::all);
  p.g.segment("combine");
  return_rows(p, d, fc2_out, base, next, "expert output", [&] {
    if (!in_parts) return;
    p.g.segment("experts");
    fc2(Part::front);
    p.g.segment("combine");
  });
}

void moe_backward(Pass& p, Handle hidden, Handle d_next, Handle d_ln2_in) {
  const LayerSpec& s = p.spec;
  const Experts w(p);
  const int64_t K = s.model.top_k;
  const Dispatched d = kept_dispatch(p);

  p.g.segment("combine backward");
  const Handle d_recv = receive_buffer(s, d_next, [&] {
    return p.g.external(p.slots.d_recv, 0, "d_out_recv", s.dtype, {s.max_recv, w.D});
  });
  send_tokens(p, d, d_next, d_recv, "output gradient");
  // Under that exchange: what is rebuilt from memory, then, on the same stream, the exchange of ln2_out again.
  const Handle ln2_in = rebuilt_ln2_in(p, hidden);
  const Handle ln2_out = rebuilt_ln2_out(p, ln2_in);
  const Handle recv = receive_buffer(s, ln2_out, [&] {
    return p.acts.need("recv", [&](Handle x) { send_tokens(p, d, ln2_out, x, "tokens again"); });
  });

  p.g.segment("experts backward");
  const Handle h13 = p.acts.need("h13", [&](Handle x) { fc1(p, w, d, ln2_out, recv, x); });
  const Handle d_fc2_in = p.temp("d_fc2_in", {s.max_rows, w.F}),
               d_h13 = p.temp("d_h13", {s.max_rows, 2 * w.F});
  const Handle d_group_weights = p.g.temp("d_group_weights", DType::f32, {s.e * s.T, K});
  const Handle d_fc2_out = p.temp("d_fc2_out", {s.max_rows, w.D});
  product_of_tokens(p, w, d, d_next, d_recv,
                    {.w = w.w2, .y = d_fc2_in, .x_in_order = d_fc2_out, .trans_w = false});
  Handle again;
  const Handle fc2_in = p.acts.need("fc2_in", [&](Handle x) { again = x; });
  ops::swiglu_backward(p.g, kCompute,
                       {.dy = d_fc2_in,
                        .h = h13,
                        .weights = d.group_weights,
                        .slots = d.row_slot,
                        .offsets = d.offsets,
                        .dh = d_h13,
                        .d_weights = d_group_weights,
                        .y = again,
                        .expected_rows = w.rows});
  const Handle d_rows = p.temp("d_rows", {s.max_rows, w.D});
  product(p, w, d, Part::all, {.x = d_h13, .w = w.w13, .y = d_rows, .trans_w = false});
  p.queue.push([&p, w, d, d_fc2_out, fc2_in, d_h13, recv] {
    ops::grouped_matmul_weight_grad(p.g, kCompute,
                                    {.dy = d_fc2_out,
                                     .x = fc2_in,
                                     .offsets = d.offsets,
                                     .dw = p.grad("experts.w2", {w.El, w.D, w.F}),
                                     .accumulate = p.adds,
                                     .expected_rows = w.rows});
    ops::grouped_matmul_weight_grad(p.g, kCompute,
                                    {.dy = d_h13,
                                     .x = recv,
                                     .x_rows = d.row_recv,
                                     .offsets = d.offsets,
                                     .dw = p.grad("experts.w13", {w.El, 2 * w.F, w.D}),
                                     .accumulate = p.adds,
                                     .expected_rows = w.rows});
  });
  Handle d_shared;
  if (s.model.shared_ffn > 0) {
    p.g.segment("shared expert backward");
    d_shared = p.temp("d_shared", {s.T, w.D});
    ffn_backward(p, "shared", s.model.shared_ffn, ln2_out, d_next, d_shared);
  }

  p.g.segment("dispatch backward");
  Handle d_weights = d_group_weights;
  if (s.e > 1) {
    d_weights = p.g.temp("d_weights", DType::f32, {s.T, K});
    comm::reduce_scatter(p.g, kComm, *s.groups.e, d_group_weights, d_weights, "gate weight gradient");
  }
  const Handle d_ln2_out = p.temp("d_ln2_out", {s.T, w.D});
  return_rows(p, d, d_rows, d_shared, d_ln2_out, "token gradient", [&] { p.queue.drain(); });
  router_backward(p, ln2_out, d_weights, d_ln2_out);
  close_half_backward(p, d_ln2_out, ln2_in, d_next, d_ln2_in);
}

void add_dense_layer_parameters(ParameterTable& table, const ModelConfig& m, const std::string& prefix) {
  add_norm_parameters(table, m, prefix + "ffn.norm");
  add_ffn_parameters(table, m, prefix, "dense", m.dense_ffn);
}

void add_dense_layer_activations(ActivationTable& table, const LayerSpec& s) {
  add_ln2_activations(table, s);
  add_ffn_activations(table, s, "dense", s.model.dense_ffn);
}

void dense_forward(Pass& p, Handle hidden, Handle attn_out, Handle next) {
  Handle ln2_in;
  const Handle ln2_out = open_half(p, hidden, attn_out, ln2_in);
  p.g.segment("dense ffn");
  const Handle out = p.temp("ffn_out", {p.spec.T, p.spec.model.hidden});
  ffn_forward(p, "dense", p.spec.model.dense_ffn, ln2_out, out);
  ops::add(p.g, kCompute, ln2_in, out, next);
}

void dense_backward(Pass& p, Handle hidden, Handle d_next, Handle d_ln2_in) {
  p.g.segment("dense ffn backward");
  const Handle ln2_in = rebuilt_ln2_in(p, hidden), ln2_out = rebuilt_ln2_out(p, ln2_in);
  const Handle d_ln2_out = p.temp("d_ln2_out", {p.spec.T, p.spec.model.hidden});
  ffn_backward(p, "dense", p.spec.model.dense_ffn, ln2_out, d_next, d_ln2_out);
  close_half_backward(p, d_ln2_out, ln2_in, d_next, d_ln2_in);
}

}  // namespace moesaic
