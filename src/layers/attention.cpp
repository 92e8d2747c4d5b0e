#include "layers/attention.h"

#include <cmath>
#include <optional>

#include "layers/head_exchange.h"
#include "ops/attention/attention.h"
#include "ops/bias/bias.h"
#include "ops/matmul/matmul.h"
#include "ops/qk_rope/qk_rope.h"
#include "ops/rmsnorm/rmsnorm.h"

namespace moesaic {
namespace {

constexpr Stream kCompute = Stream::compute;

struct Weights {
  explicit Weights(Pass& p)
      : norm(p.weight("attention.norm", {p.spec.model.hidden})),
        qkv(p.weight("attention.qkv", {p.spec.qkv_width(), p.spec.model.hidden})),
        o(p.weight("attention.o", {p.spec.model.hidden, p.spec.model.num_heads * p.spec.model.head_dim})) {
    norm_bias = p.norm_bias("attention.norm");
    if (p.spec.model.attention_bias) {
      qkv_bias = p.weight("attention.qkv_bias", {p.spec.qkv_width()});
      o_bias = p.weight("attention.o_bias", {p.spec.model.hidden});
    }
    if (!p.spec.model.qk_norm) return;
    q_norm = p.weight("attention.q_norm", {p.spec.model.head_dim});
    k_norm = p.weight("attention.k_norm", {p.spec.model.head_dim});
  }
  Handle norm, qkv, o, q_norm, k_norm, norm_bias, qkv_bias, o_bias;
};

/// hidden -> ln1_out, as in the forward pass.
void normalize(Pass& p, const Weights& w, Handle hidden, Handle ln1_out, Handle rstd) {
  ops::rmsnorm_forward(p.g, kCompute,
                       {.x = hidden,
                        .gain = w.norm,
                        .y = ln1_out,
                        .rstd = rstd,
                        .eps = static_cast<float>(p.spec.model.norm_eps),
                        .bias = w.norm_bias});
}

void project(Pass& p, const Weights& w, Handle ln1_out, Handle qkv) {
  ops::matmul(p.g, kCompute, {.a = ln1_out, .b = w.qkv, .c = qkv, .trans_b = true});
  if (w.qkv_bias) ops::add_bias(p.g, kCompute, qkv, w.qkv_bias);
}

/// qkv -> norm and rope -> qkv_x.
void rotate(Pass& p, const Weights& w, Handle qkv, Handle qkv_x) {
  const auto& m = p.spec.model;
  const bool exchange = p.spec.exchanges_heads();
  const Handle rotated = exchange ? p.temp("qkv_rope", {p.spec.T, p.spec.qkv_width()})
                                  : p.g.view(qkv_x, 0, {p.spec.T, p.spec.qkv_width()});
  ops::qk_rope_forward(p.g, kCompute,
                       {.qkv = qkv,
                        .positions = BatchLayout(p.spec).positions(p.g, p.slots),
                        .gain_q = w.q_norm,
                        .gain_k = w.k_norm,
                        .out = rotated,
                        .num_heads = m.num_heads,
                        .num_kv_heads = m.num_kv_heads,
                        .head_dim = m.head_dim,
                        .theta = static_cast<float>(m.rope_theta),
                        .eps = static_cast<float>(m.norm_eps),
                        .factors = p.spec.rope_factors(),
                        .scale = p.spec.rope_scale()});
  if (!exchange) return;
  for (const Sequences which : halves(p.spec)) exchange_qkv(p, which, rotated, qkv_x);
}

/// Where each token's document starts; absent when a sequence is always one document, which attention does faster.
Handle doc_start(Pass& p, Sequences which) {
  return p.spec.packed_documents ? part(p, BatchLayout(p.spec).doc_start(p.g, p.slots), which) : Handle{};
}

void attend(Pass& p, Sequences which, Handle qkv_x, Handle attn, Handle lse) {
  ops::attention_forward(p.g, kCompute,
                         {.qkv = part(p, qkv_x, which),
                          .doc_start = doc_start(p, which),
                          .o = part(p, attn, which),
                          .lse = part(p, lse, which),
                          .num_heads = p.spec.local_heads,
                          .num_kv_heads = p.spec.local_kv_heads,
                          .head_dim = p.spec.model.head_dim});
}

// In a backward pass: each tensor kept, or made again from the one before it.
Handle rebuilt_ln1_out(Pass& p, const Weights& w, Handle hidden) {
  return p.acts.need("ln1_out", [&](Handle x) { normalize(p, w, hidden, x, {}); });
}
Handle rebuilt_qkv(Pass& p, const Weights& w, Handle hidden) {
  return p.acts.need("qkv", [&](Handle x) { project(p, w, rebuilt_ln1_out(p, w, hidden), x); });
}
Handle rebuilt_qkv_x(Pass& p, const Weights& w, Handle hidden) {
  return p.acts.need("qkv_x", [&](Handle x) { rotate(p, w, rebuilt_qkv(p, w, hidden), x); });
}
Handle rebuilt_attn(Pass& p, const Weights& w, Handle hidden) {
  return p.acts.need("attn", [&](Handle x) {
    const Shape statistics = p.acts.shape("lse");
    const Handle qkv_x = rebuilt_qkv_x(p, w, hidden), lse = p.g.temp("lse_again", DType::f32, statistics);
    for (const Sequences which : halves(p.spec)) attend(p, which, qkv_x, x, lse);
  });
}
Handle rebuilt_attn_x(Pass& p, const Weights& w, Handle hidden) {
  const auto& s = p.spec;
  const Handle attn = rebuilt_attn(p, w, hidden);
  if (!s.exchanges_heads()) return p.g.view(attn, 0, {s.T, s.local_heads * s.model.head_dim});
  return p.acts.need("attn_x", [&](Handle x) {
    for (const Sequences which : halves(s)) exchange_heads(p, which, attn, x, false, "attn again");
  });
}

void project_output(Pass& p, const Weights& w, Handle attn_x, Handle attn_out) {
  ops::matmul(p.g, kCompute, {.a = attn_x, .b = w.o, .c = attn_out, .trans_b = true});
  if (w.o_bias) ops::add_bias(p.g, kCompute, attn_out, w.o_bias);
}

}  // namespace

void add_attention_parameters(ParameterTable& table, const ModelConfig& m, const std::string& prefix) {
  const int64_t D = m.hidden, A = m.head_dim;
  const double residual_std = m.init_std / std::sqrt(2.0 * static_cast<double>(m.num_layers));
  const auto add = [&](const std::string& name, Shape shape, Init init, double std, bool decay,
                       const std::string& device_tensor) {
    table.add({prefix + name, shape, init, std, decay, prefix + device_tensor});
  };
  add_norm_parameters(table, m, prefix + "attention.norm");
  add("attention.q", {m.num_heads * A, D}, Init::normal, m.init_std, true, "attention.qkv");
  add("attention.k", {m.num_kv_heads * A, D}, Init::normal, m.init_std, true, "attention.qkv");
  add("attention.v", {m.num_kv_heads * A, D}, Init::normal, m.init_std, true, "attention.qkv");
  add("attention.o", {D, m.num_heads * A}, Init::normal, residual_std, true, "attention.o");
  if (m.attention_bias) {
    const std::string qkv_bias = prefix + "attention.qkv_bias";
    add_bias_parameter(table, prefix + "attention.q_bias", m.num_heads * A, qkv_bias);
    add_bias_parameter(table, prefix + "attention.k_bias", m.num_kv_heads * A, qkv_bias);
    add_bias_parameter(table, prefix + "attention.v_bias", m.num_kv_heads * A, qkv_bias);
    add_bias_parameter(table, prefix + "attention.o_bias", D, prefix + "attention.o_bias");
  }
  if (!m.qk_norm) return;
  add("attention.q_norm", {A}, Init::ones, 0, false, "attention.q_norm");
  add("attention.k_norm", {A}, Init::ones, 0, false, "attention.k_norm");
}

void add_attention_activations(ActivationTable& table, const LayerSpec& s) {
  const int64_t D = s.model.hidden, HA = s.model.num_heads * s.model.head_dim;
  const int64_t B = s.attention_batch, S = s.S;
  table.add({"hidden", "T D", {s.T, D}, s.dtype, Keep::always, ""});
  table.add({"ln1_rstd", "T", {s.T}, DType::f32, Keep::always, ""});
  table.add({"ln1_out", "T D", {s.T, D}, s.dtype, Keep::none, "RMSNorm of hidden"});
  table.add({"qkv",
             "T (H+2G)A",
             {s.T, s.qkv_width()},
             s.dtype,
             s.model.qk_norm ? Keep::none : Keep::never,
             "QKV projection of ln1_out"});
  table.add({"qkv_x",
             "B S (H'+2G')A",
             {B, S, s.local_qkv_width()},
             s.dtype,
             Keep::selective,
             "QKV projection, RoPE and head exchange"});
  table.add(
      {"attn", "B S H'A", {B, S, s.local_heads * s.model.head_dim}, s.dtype, Keep::selective, "attention"});
  table.add({"lse", "B H' S", {B, s.local_heads, S}, DType::f32, Keep::always, ""});
  if (s.exchanges_heads())
    table.add({"attn_x", "T HA", {s.T, HA}, s.dtype, Keep::none, "head exchange of attn"});
}

Handle attention_forward(Pass& p, Handle hidden) {
  p.g.segment("attention");
  const Weights w(p);
  const Handle ln1_out = p.acts.make("ln1_out");
  normalize(p, w, hidden, ln1_out, p.acts.make("ln1_rstd"));
  const Handle qkv = p.acts.make("qkv"), qkv_x = p.acts.make("qkv_x");
  project(p, w, ln1_out, qkv);
  rotate(p, w, qkv, qkv_x);
  const bool exchange = p.spec.exchanges_heads();
  const Handle attn = p.acts.make("attn"), lse = p.acts.make("lse");
  const Handle attn_x = exchange ? p.acts.make("attn_x")
                                 : p.g.view(attn, 0, {p.spec.T, p.spec.local_heads * p.spec.model.head_dim});
  for (const Sequences which : halves(p.spec)) {
    attend(p, which, qkv_x, attn, lse);
    if (exchange) exchange_heads(p, which, attn, attn_x, false, "attn");
  }
  const Handle attn_out = p.temp("attn_out", {p.spec.T, p.spec.model.hidden});
  project_output(p, w, attn_x, attn_out);
  return attn_out;
}

Handle attention_output_again(Pass& p, Handle hidden) {
  p.g.segment("attention again");
  const Weights w(p);
  const Handle attn_out = p.temp("attn_out", {p.spec.T, p.spec.model.hidden});
  project_output(p, w, rebuilt_attn_x(p, w, hidden), attn_out);
  return attn_out;
}

void attention_backward(Pass& p, Handle hidden, Handle d_ln2_in, Handle d_hidden) {
  p.g.segment("attention backward");
  const LayerSpec& s = p.spec;
  const ModelConfig& m = s.model;
  const Weights w(p);
  const int64_t HA = m.num_heads * m.head_dim, B = s.attention_batch;
  const float eps = static_cast<float>(m.norm_eps);

  const Handle d_attn_x = p.temp("d_attn_x", {s.T, HA});
  ops::matmul(p.g, kCompute, {.a = d_ln2_in, .b = w.o, .c = d_attn_x});
  Handle d_attn = p.g.view(d_attn_x, 0, {B, s.S, s.local_heads * m.head_dim});
  if (s.exchanges_heads()) {
    d_attn = p.temp("d_attn", {B, s.S, s.local_heads * m.head_dim});
    for (const Sequences which : halves(s)) exchange_heads(p, which, d_attn_x, d_attn, true, "d_attn");
  }
  // Under that exchange: weight gradients that wait, and what is rebuilt without communication.
  p.queue.drain();
  const Handle ln1_out = rebuilt_ln1_out(p, w, hidden);
  const Handle qkv = m.qk_norm ? rebuilt_qkv(p, w, hidden) : Handle{};
  const Handle qkv_x = rebuilt_qkv_x(p, w, hidden), attn = rebuilt_attn(p, w, hidden);
  const Handle attn_x = rebuilt_attn_x(p, w, hidden), lse = p.acts.kept("lse");

  const Handle d_qkv_x = p.temp("d_qkv_x", {B, s.S, s.local_qkv_width()});
  const Handle d_qkv = s.exchanges_heads() ? p.temp("d_qkv", {s.T, s.qkv_width()})
                                           : p.g.view(d_qkv_x, 0, {s.T, s.local_qkv_width()});
  std::optional<DqkvReturn> back;
  if (s.exchanges_heads()) back.emplace(p, d_qkv);
  for (const Sequences which : halves(s)) {
    ops::attention_backward(p.g, kCompute,
                            {.d_o = part(p, d_attn, which),
                             .qkv = part(p, qkv_x, which),
                             .o = part(p, attn, which),
                             .lse = part(p, lse, which),
                             .doc_start = doc_start(p, which),
                             .d_qkv = part(p, d_qkv_x, which),
                             .num_heads = s.local_heads,
                             .num_kv_heads = s.local_kv_heads,
                             .head_dim = m.head_dim,
                             .tuning = {.deterministic = s.deterministic}});
    if (back) back->send(which, d_qkv_x);
  }
  p.queue.push([&p, &m, d_ln2_in, attn_x, HA] {
    ops::matmul(p.g, kCompute,
                {.a = d_ln2_in,
                 .b = attn_x,
                 .c = p.grad("attention.o", {m.hidden, HA}),
                 .trans_a = true,
                 .accumulate = p.adds});
  });
  if (back) {
    p.queue.drain();  // under that exchange
    back->finish();
  }
  if (m.attention_bias)
    ops::bias_backward(p.g, kCompute, d_ln2_in, p.added_grad("attention.o_bias", {m.hidden}));

  ops::QkRopeBackward rope{.d_out = d_qkv,
                           .positions = BatchLayout(s).positions(p.g, p.slots),
                           .d_qkv = d_qkv,
                           .num_heads = m.num_heads,
                           .num_kv_heads = m.num_kv_heads,
                           .head_dim = m.head_dim,
                           .theta = static_cast<float>(m.rope_theta),
                           .eps = eps,
                           .factors = s.rope_factors(),
                           .scale = s.rope_scale()};
  if (m.qk_norm) {
    rope.qkv = qkv, rope.gain_q = w.q_norm, rope.gain_k = w.k_norm;
    rope.d_gain_q = p.added_grad("attention.q_norm", {m.head_dim}),
    rope.d_gain_k = p.added_grad("attention.k_norm", {m.head_dim});
  }
  ops::qk_rope_backward(p.g, kCompute, rope);
  if (m.attention_bias)
    ops::bias_backward(p.g, kCompute, d_qkv, p.added_grad("attention.qkv_bias", {s.qkv_width()}));
  const Handle d_ln1_out = p.temp("d_ln1_out", {s.T, m.hidden});
  ops::matmul(p.g, kCompute, {.a = d_qkv, .b = w.qkv, .c = d_ln1_out});
  p.queue.push([&p, &m, &s, d_qkv, ln1_out] {
    ops::matmul(p.g, kCompute,
                {.a = d_qkv,
                 .b = ln1_out,
                 .c = p.grad("attention.qkv", {s.qkv_width(), m.hidden}),
                 .trans_a = true,
                 .accumulate = p.adds});
  });
  ops::rmsnorm_backward(p.g, kCompute,
                        {.dy = d_ln1_out,
                         .x = hidden,
                         .gain = w.norm,
                         .rstd = p.acts.kept("ln1_rstd"),
                         .add = d_ln2_in,
                         .dx = d_hidden,
                         .dgain = p.added_grad("attention.norm", {m.hidden}),
                         .eps = eps,
                         .d_bias = p.added_norm_bias_grad("attention.norm")});
  p.queue.drain();  // under the layer below's first exchange, which waits for d_hidden alone
}

}  // namespace moesaic
