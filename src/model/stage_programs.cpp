#include "model/stage_programs.h"

#include <algorithm>

#include "layers/attention.h"
#include "layers/moe.h"
#include "layers/pass.h"
#include "model/parameters.h"
#include "ops/bias/bias.h"
#include "ops/elementwise/elementwise.h"
#include "ops/embedding/embedding.h"
#include "ops/head_loss/head_loss.h"
#include "ops/matmul/matmul.h"
#include "ops/rmsnorm/rmsnorm.h"

namespace moesaic {
namespace {

constexpr Stream kCompute = Stream::compute;
/// Of one chunk of logits in head_loss: small enough for a CPU's caches; on a GPU each chunk reads the whole head and adds to its
/// whole gradient, so few.
int64_t logit_bytes(DeviceKind device) {
  return device == DeviceKind::cuda ? 512 << 20 : 16 << 20;
}

enum class Way { forward, first_backward, backward, evaluate };

std::unique_ptr<Plan> record_layer(const LayerSpec& spec, const ParameterTable& table, DeviceKind device,
                                   int64_t index, const ActivationTable& activations, Way way) {
  const bool dense = is_dense(spec.model, index);
  const std::string kind = dense ? "dense layer" : "MoE layer";
  static constexpr std::array<const char*, 4> kWays{"forward", "first backward", "backward", "evaluate"};
  Program g(fmt::format("{} {}", kind, kWays[static_cast<size_t>(way)]), device);
  Pass p(g, spec, table, layer_prefix(index), activations, spec.layout.rebuild, way == Way::evaluate,
         way != Way::first_backward);
  const Shape stream{spec.T, spec.model.hidden};
  const Handle hidden = p.acts.kept("hidden");
  if (way == Way::backward || way == Way::first_backward) {
    const Handle d_stream = g.external(p.slots.d_stream, 0, "d_stream", spec.dtype, stream);
    const Handle d_ln2_in = p.temp("d_ln2_in", stream);
    (dense ? dense_backward : moe_backward)(p, hidden, d_stream, d_ln2_in);
    attention_backward(p, hidden, d_ln2_in, d_stream);
  } else {
    const Handle next = g.external(p.slots.next, 0, "next", spec.dtype, stream);
    const Handle attn_out = attention_forward(p, hidden);
    (dense ? dense_forward : moe_forward)(p, hidden, attn_out, next);
  }
  MOESAIC_CHECK(p.queue.empty());
  return std::make_unique<Plan>(std::move(g));
}

std::unique_ptr<LayerPrograms> record_kind(const LayerSpec& spec, const ParameterTable& table,
                                           DeviceKind device, int64_t index) {
  auto layer = std::make_unique<LayerPrograms>();
  add_attention_activations(layer->activations, spec);
  (is_dense(spec.model, index) ? add_dense_layer_activations : add_moe_activations)(layer->activations, spec);
  layer->forward = record_layer(spec, table, device, index, layer->activations, Way::forward);
  layer->backward = record_layer(spec, table, device, index, layer->activations, Way::backward);
  layer->first_backward = record_layer(spec, table, device, index, layer->activations, Way::first_backward);
  layer->evaluate = record_layer(spec, table, device, index, layer->activations, Way::evaluate);
  return layer;
}

enum class Embed { forward, first_backward, backward };

std::unique_ptr<Plan> record_embed(const LayerSpec& spec, DeviceKind device, Embed way) {
  static constexpr std::array<const char*, 3> kNames{"embedding", "first embedding backward",
                                                     "embedding backward"};
  Program g(kNames[static_cast<size_t>(way)], device);
  g.segment("embedding");
  const StageSlots slots(g);
  const ModelConfig& m = spec.model;
  const Handle tokens = BatchLayout(spec).tokens(g, slots);
  const Shape stream{spec.T, m.hidden}, table{m.vocab, m.hidden};
  if (way != Embed::forward) {
    const Handle d_table = g.external(slots.grads, 0, "d_embedding", DType::f32, table);
    // A tied head has written it already.
    if (way == Embed::first_backward && !m.tied_embedding) ops::zero(g, kCompute, d_table);
    ops::embedding_backward(g, kCompute,
                            {.tokens = tokens,
                             .dx = g.external(slots.d_stream, 0, "d_stream", spec.dtype, stream),
                             .dtable = d_table});
  } else {
    ops::embedding_forward(g, kCompute,
                           {.tokens = tokens,
                            .table = g.external(slots.weights, 0, "embedding", spec.dtype, table),
                            .x = g.external(slots.kept, 0, "hidden", spec.dtype, stream)});
  }
  return std::make_unique<Plan>(std::move(g));
}

enum class Head { first_train, train, evaluate, logits };

std::unique_ptr<Plan> record_head(const LayerSpec& spec, const ParameterTable& table, DeviceKind device,
                                  Head what) {
  static constexpr std::array<const char*, 4> kNames{"first head", "head", "head evaluate", "logits"};
  Program g(kNames[static_cast<size_t>(what)], device);
  g.segment("head");
  const StageSlots slots(g);
  const ModelConfig& m = spec.model;
  const BatchLayout batch(spec);
  const StepScalars step(g, slots.step);
  const Shape stream{spec.T, m.hidden}, matrix{m.vocab, m.hidden};
  const float eps = static_cast<float>(m.norm_eps);
  const auto place = [&](const std::string& name) { return table.place(name).offset; };
  const int64_t at = m.tied_embedding ? 0 : place("head");
  const auto [w_slot, d_slot] =
      m.tied_embedding ? std::pair(slots.weights2, slots.grads2) : std::pair(slots.weights, slots.grads);
  const Handle hidden = g.external(slots.kept, 0, "hidden", spec.dtype, stream);
  const Handle gain = g.external(slots.weights, place("final_norm") * size_of(spec.dtype), "final_norm",
                                 spec.dtype, {m.hidden});
  const Handle w = g.external(w_slot, at * size_of(spec.dtype), "head", spec.dtype, matrix);
  const Handle x = g.temp("final_norm_out", spec.dtype, stream),
               rstd = g.temp("final_rstd", DType::f32, {spec.T});
  // A vector of the head's bucket; absent unless the model has it.
  const auto vector = [&](bool present, const std::string& name, int64_t width) {
    return present ? g.external(slots.weights, place(name) * size_of(spec.dtype), name, spec.dtype, {width})
                   : Handle{};
  };
  const Handle norm_bias = vector(m.layer_norm, "final_norm_bias", m.hidden),
               head_bias = vector(m.head_bias, "head_bias", m.vocab);
  ops::rmsnorm_forward(g, kCompute,
                       {.x = hidden, .gain = gain, .y = x, .rstd = rstd, .eps = eps, .bias = norm_bias});
  if (what == Head::logits) {
    const Handle logits = g.external(slots.next, 0, "logits", DType::f32, {spec.T, m.vocab});
    ops::matmul(g, kCompute, {.a = x, .b = w, .c = logits, .trans_b = true});
    if (head_bias) ops::add_bias(g, kCompute, logits, head_bias);
    return std::make_unique<Plan>(std::move(g));
  }
  const int64_t chunk =
      std::clamp<int64_t>(logit_bytes(device) / (4 * m.vocab), std::min<int64_t>(16, spec.T), spec.T);
  ops::HeadLoss loss{.x = x,
                     .w = w,
                     .targets = batch.targets(g, slots),
                     .logits = g.temp("logit_chunk", DType::f32, {chunk, m.vocab}),
                     .loss = step.loss,
                     .counted = step.seen};
  loss.bias = head_bias;
  if (what == Head::evaluate) {
    ops::head_loss(g, kCompute, loss);
    return std::make_unique<Plan>(std::move(g));
  }
  loss.scale = step.loss_scale;
  loss.dx = g.temp("d_final_norm_out", spec.dtype, stream);
  loss.dw = g.external(d_slot, at * 4, "d_head", DType::f32, matrix);
  loss.accumulate = what == Head::train;
  const Handle d_gain =
      g.external(slots.grads, place("final_norm") * 4, "d_final_norm", DType::f32, {m.hidden});
  const auto gradient = [&](bool present, const std::string& name, int64_t width) {
    return present ? g.external(slots.grads, place(name) * 4, "d_" + name, DType::f32, {width}) : Handle{};
  };
  const Handle d_norm_bias = gradient(m.layer_norm, "final_norm_bias", m.hidden);
  loss.d_bias = gradient(m.head_bias, "head_bias", m.vocab);
  if (what == Head::first_train) ops::zero(g, kCompute, d_gain);
  if (what == Head::first_train && d_norm_bias) ops::zero(g, kCompute, d_norm_bias);
  ops::head_loss(g, kCompute, loss);
  ops::rmsnorm_backward(g, kCompute,
                        {.dy = loss.dx,
                         .x = hidden,
                         .gain = gain,
                         .rstd = rstd,
                         .dx = g.external(slots.d_stream, 0, "d_stream", spec.dtype, stream),
                         .dgain = d_gain,
                         .eps = eps,
                         .d_bias = d_norm_bias});
  return std::make_unique<Plan>(std::move(g));
}

}  // namespace

StagePrograms::StagePrograms(const LayerSpec& spec, const ParameterTable& table, DeviceKind device) {
  const ModelConfig& m = spec.model;
  if (m.num_dense_layers > 0) dense = record_kind(spec, table, device, 0);
  if (m.num_dense_layers < m.num_layers) moe = record_kind(spec, table, device, m.num_dense_layers);
  embed = record_embed(spec, device, Embed::forward);
  embed_backward = record_embed(spec, device, Embed::backward);
  first_embed_backward = record_embed(spec, device, Embed::first_backward);
  head = record_head(spec, table, device, Head::train);
  first_head = record_head(spec, table, device, Head::first_train);
  head_evaluate = record_head(spec, table, device, Head::evaluate);
  logits = record_head(spec, table, device, Head::logits);
}

const LayerPrograms& StagePrograms::layer(const ModelConfig& model, int64_t index) const {
  return is_dense(model, index) ? *dense : *moe;
}

std::vector<const Plan*> StagePrograms::plans() const {
  std::vector<const Plan*> all{embed.get()};
  for (const auto* kind : {dense.get(), moe.get()})
    if (kind)
      all.insert(all.end(), {kind->forward.get(), kind->first_backward.get(), kind->backward.get(),
                             kind->evaluate.get()});
  all.insert(all.end(), {first_head.get(), head.get(), first_embed_backward.get(), embed_backward.get(),
                         head_evaluate.get(), logits.get()});
  return all;
}

int64_t StagePrograms::workspace_bytes() const {
  int64_t most = 0;
  for (const Plan* plan : plans()) most = std::max(most, plan->workspace_bytes());
  return most;
}

}  // namespace moesaic
