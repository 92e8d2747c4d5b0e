#include "model/stage.h"

#include <algorithm>

#include "base/rng.h"
#include "model/parameters.h"
#include "ops/initialize/initialize.h"

namespace moesaic {

Stage::Stage(const LayerSpec& spec, ParameterTable table, Device& device, int64_t num_in_flight)
    : spec_(spec), table_(std::move(table)), device_(device), num_in_flight_(num_in_flight) {
  Arena& arena = device_.arena();
  programs_ = std::make_unique<StagePrograms>(spec_, table_, device_.kind());
  for (const Bucket& bucket : table_.buckets()) {
    weights_.push_back(
        arena.allocate(Purpose::parameters, bucket.name, bucket.padded * size_of(spec_.dtype)));
    grads_.push_back(arena.allocate_array<float>(Purpose::gradients, bucket.name, bucket.padded));
  }
  for (int64_t p = 0; p < num_in_flight_; ++p)
    batches_.push_back(
        arena.allocate(Purpose::batch, fmt::format("micro-batch {}", p), BatchLayout(spec_).bytes()));
  stats_ = arena.allocate(Purpose::buffers, "layer statistics", stats_bytes());
  step_ = arena.allocate(Purpose::buffers, "step scalars", StepScalars::kBytes);
  evaluation_stats_ = arena.allocate(Purpose::buffers, "evaluation statistics", stats_bytes());
  evaluation_step_ = arena.allocate(Purpose::buffers, "evaluation scalars", StepScalars::kBytes);
  bias_ = arena.allocate_array<float>(Purpose::buffers, "router biases",
                                      spec_.model.num_layers * spec_.model.num_experts);
  allocate_activations();
}

void Stage::allocate_activations() {
  Arena& arena = device_.arena();
  const int64_t L = spec_.model.num_layers, stream = spec_.T * spec_.model.hidden * size_of(spec_.dtype);
  kept_.assign(static_cast<size_t>(num_in_flight_), {});
  d_stream_.clear();
  for (int64_t p = 0; p < num_in_flight_; ++p) {
    for (int64_t i = 0; i < L; ++i)
      kept_[static_cast<size_t>(p)].push_back(
          arena.allocate(Purpose::activations, fmt::format("layer {} of micro-batch {}", i, p),
                         programs_->layer(spec_.model, i).activations.bytes(spec_.layout.rebuild)));
    kept_[static_cast<size_t>(p)].push_back(
        arena.allocate(Purpose::activations, fmt::format("head input of micro-batch {}", p), stream));
    d_stream_.push_back(arena.allocate(Purpose::activations, fmt::format("stream gradient {}", p), stream));
  }
  workspace_ = arena.allocate(Purpose::workspace, "temps", programs_->workspace_bytes());
  d_recv_ = nullptr;
  if (spec_.e > 1)
    d_recv_ = arena.allocate(Purpose::workspace, "received gradients",
                             spec_.max_recv * spec_.model.hidden * size_of(spec_.dtype));
  logits_ = nullptr;
}

void Stage::rebuild(const LayerSpec& spec) {
  device_.synchronize();
  device_.arena().release(Purpose::activations);
  device_.arena().release(Purpose::workspace);
  spec_ = spec;
  programs_ = std::make_unique<StagePrograms>(spec_, table_, device_.kind());
  allocate_activations();
}

void Stage::initialize(uint64_t seed) {
  Program g("initialize", device_.kind());
  g.segment("initialize");
  Bindings bindings{nullptr};
  std::vector<Slot> slots;
  for (size_t b = 0; b < weights_.size(); ++b) {
    slots.push_back(g.slot(table_.buckets()[b].name));
    bindings.push_back(weights_[b]);
  }
  for (const ParameterRow& row : table_.rows())
    ops::initialize(g, Stream::compute,
                    {.y = g.external(slots[static_cast<size_t>(row.bucket)],
                                     row.offset * size_of(spec_.dtype), row.name, spec_.dtype, row.shape),
                     .seed = seed,
                     .stream = stream_of(row.name),
                     .mean = row.mean(),
                     .std = static_cast<float>(row.std)});
  const Plan plan(std::move(g));
  device_.replay(plan, bindings);
  device_.synchronize();
}

Bindings Stage::bind(int32_t bucket, int32_t second, int64_t layer, int64_t place, bool evaluation) const {
  const auto p = static_cast<size_t>(place), l = static_cast<size_t>(layer);
  const int64_t per_layer = LayerStats::bytes(spec_.model.num_experts);
  const auto grad = [&](int32_t b) { return reinterpret_cast<std::byte*>(grads(b)); };
  const bool last = layer == spec_.model.num_layers;
  return {workspace_,
          weights(bucket),
          grad(bucket),
          weights(second),
          grad(second),
          kept_[p][l],
          last ? logits_ : kept_[p][l + 1],
          d_stream_[p],
          batches_[p],
          (evaluation ? evaluation_stats_ : stats_) + (last ? 0 : layer) * per_layer,
          evaluation ? evaluation_step_ : step_,
          reinterpret_cast<std::byte*>(bias_ + (last ? 0 : layer) * spec_.model.num_experts),
          d_recv_};
}

Bindings Stage::bind_layer(int64_t layer, int64_t place, bool evaluation) const {
  const int32_t dense = table_.bucket(fmt::format("layers.{}", layer));
  const int32_t experts =
      is_dense(spec_.model, layer) ? dense : table_.bucket(fmt::format("layers.{}.experts", layer));
  return bind(dense, experts, layer, place, evaluation);
}

Bindings Stage::bind_embedding(int64_t place, bool evaluation) const {
  const int32_t bucket = table_.bucket("embedding");
  return bind(bucket, bucket, 0, place, evaluation);
}

Bindings Stage::bind_head(int64_t place, bool evaluation) const {
  return bind(table_.bucket("head"), table_.bucket("embedding"), spec_.model.num_layers, place, evaluation);
}

void Stage::run_layers(int64_t place, bool evaluation) {
  device_.replay(*programs_->embed, bind_embedding(place, evaluation));
  for (int64_t i = 0; i < spec_.model.num_layers; ++i) {
    const LayerPrograms& layer = programs_->layer(spec_.model, i);
    device_.replay(evaluation ? *layer.evaluate : *layer.forward, bind_layer(i, place, evaluation));
  }
}

void Stage::forward(int64_t place, bool first) {
  run_layers(place, false);
  device_.replay(first ? *programs_->first_head : *programs_->head, bind_head(place, false));
}

void Stage::backward(int64_t place, bool first) {
  for (int64_t i = spec_.model.num_layers; i-- > 0;) {
    const LayerPrograms& layer = programs_->layer(spec_.model, i);
    device_.replay(first ? *layer.first_backward : *layer.backward, bind_layer(i, place, false));
  }
  device_.replay(first ? *programs_->first_embed_backward : *programs_->embed_backward,
                 bind_embedding(place, false));
}

void Stage::evaluate() {
  run_layers(0, true);
  device_.replay(*programs_->head_evaluate, bind_head(0, true));
}

const std::byte* Stage::logits() {
  if (!logits_)
    logits_ = device_.arena().allocate(Purpose::workspace, "logits", spec_.T * spec_.model.vocab * 4);
  run_layers(0, true);
  device_.replay(*programs_->logits, bind_head(0, true));
  return logits_;
}

}  // namespace moesaic
