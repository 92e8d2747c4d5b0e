#include "optim/optimizer.h"

#include <algorithm>

#include "base/rng.h"
#include "ops/initialize/initialize.h"
#include "ops/optimizer/optimizer.h"
#include "ops/router/router.h"

namespace moesaic {

Optimizer::Optimizer(Stage& stage, Reducer& reducer, const OptimConfig& config)
    : stage_(stage), reducer_(reducer), config_(config) {
  const auto& buckets = stage.table().buckets();
  const LayerSpec& spec = stage.spec();
  const DType dtype = spec.dtype;
  Device& device = stage.device();
  Arena& arena = device.arena();
  const bool adam = config.kind == OptimizerKind::adamw;
  if (adam) states_ = {{"exp_avg", DType::f32, {}}, {"exp_avg_sq", DType::f32, {}}};
  if (!adam && config.momentum != 0) states_ = {{"momentum", DType::f32, {}}};
  if (dtype == DType::bf16) states_.push_back({"remainder", DType::u16, {}});
  for (State& s : states_)
    for (const Bucket& b : buckets)
      s.shards.push_back(
          arena.allocate(Purpose::optimizer, s.kind + " of " + b.name, b.shard() * size_of(s.dtype)));

  Program g("optimizer step", device.kind());
  g.segment("optimizer");
  const Slot step_slot = g.slot("step"), counts_slot = g.slot("expert counts"),
             bias_slot = g.slot("router biases");
  bindings_ = {nullptr, stage.step_scalars(), const_cast<std::byte*>(reducer.global_counts()),
               reinterpret_cast<std::byte*>(stage.router_bias(0))};
  const StepScalars step(g, step_slot);
  const auto tensor = [&](const std::string& name, std::byte* memory, DType type, int64_t count) {
    bindings_.push_back(memory);
    return g.external(g.slot(name), 0, name, type, {count});
  };
  for (size_t b = 0; b < buckets.size(); ++b) {
    const int64_t shard = buckets[b].shard();
    const auto bucket = static_cast<int32_t>(b);
    const std::string& name = buckets[b].name;
    std::byte* weights = stage.weights(bucket) + reducer.shard_index(bucket) * shard * size_of(dtype);
    ops::OptimizerShard part{
        .param = tensor(name, weights, dtype, shard),
        .remainder =
            dtype == DType::bf16 ? tensor("remainder", state("remainder", b), DType::u16, shard) : Handle{},
        .grad =
            tensor("gradient", reinterpret_cast<std::byte*>(reducer.grad_shard(bucket)), DType::f32, shard),
        .scalars = step.learning,
        .clip_scale = step.clip_scale,
        .ok = step.ok,
        .decay = decayed(bucket)};
    const auto weight_decay = static_cast<float>(config.weight_decay);
    if (adam)
      ops::adamw(g, Stream::reduce,
                 {.shard = part,
                  .m = tensor("exp_avg", state("exp_avg", b), DType::f32, shard),
                  .v = tensor("exp_avg_sq", state("exp_avg_sq", b), DType::f32, shard),
                  .beta1 = static_cast<float>(config.beta1),
                  .beta2 = static_cast<float>(config.beta2),
                  .eps = static_cast<float>(config.eps),
                  .weight_decay = weight_decay});
    else
      ops::sgd(
          g, Stream::reduce,
          {.shard = part,
           .momentum_buffer =
               config.momentum != 0 ? tensor("momentum", state("momentum", b), DType::f32, shard) : Handle{},
           .momentum = static_cast<float>(config.momentum),
           .weight_decay = weight_decay});
  }
  const int64_t E = spec.model.num_experts;
  if (spec.model.router.selection_bias)
    for (int64_t i = spec.model.num_dense_layers; i < spec.model.num_layers; ++i)
      ops::router_bias_update(g, Stream::reduce,
                              {.counts = g.external(counts_slot, 4 * i * E, "counts", DType::i32, {E}),
                               .bias = g.external(bias_slot, 4 * i * E, "router_bias", DType::f32, {E}),
                               .ok = step.ok,
                               .rate = static_cast<float>(spec.model.router.bias_rate)});
  step_ = std::make_unique<Plan>(std::move(g));
  bindings_.front() =
      arena.allocate(Purpose::buffers, "workspace of the optimizer", step_->workspace_bytes());
}

std::vector<ops::ElementRange> Optimizer::decayed(int32_t bucket) const {
  const int64_t shard = stage_.table().buckets()[static_cast<size_t>(bucket)].shard();
  const int64_t first = reducer_.shard_index(bucket) * shard;
  std::vector<ops::ElementRange> ranges;
  for (const ParameterRow& row : stage_.table().rows()) {
    if (!row.decay || row.bucket != bucket) continue;
    const int64_t begin = std::max(row.offset, first) - first;
    const int64_t end = std::min(row.offset + row.shape.numel(), first + shard) - first;
    if (begin >= end) continue;
    if (!ranges.empty() && ranges.back().end == begin)
      ranges.back().end = end;
    else
      ranges.push_back({begin, end});
  }
  return ranges;
}

std::byte* Optimizer::state(const char* kind, size_t bucket) const {
  for (const State& s : states_)
    if (s.kind == kind) return s.shards[bucket];
  MOESAIC_CHECK(false, "no state {}", kind);
  return nullptr;
}

void Optimizer::make_master(uint64_t seed) {
  if (stage_.spec().dtype != DType::bf16) return;
  const auto& buckets = stage_.table().buckets();
  Program g("initialize master weights", stage_.device().kind());
  g.segment("initialize");
  Bindings bindings{nullptr};
  std::vector<Slot> weights, remainders;
  for (size_t b = 0; b < buckets.size(); ++b) {
    weights.push_back(g.slot(buckets[b].name));
    bindings.push_back(stage_.weights(static_cast<int32_t>(b)));
    remainders.push_back(g.slot("remainder of " + buckets[b].name));
    bindings.push_back(state("remainder", b));
  }
  for (const ParameterRow& row : stage_.table().rows()) {
    const auto b = static_cast<size_t>(row.bucket);
    const int64_t first = reducer_.shard_index(row.bucket) * buckets[b].shard();
    const int64_t begin = std::max(row.offset, first);
    const int64_t end = std::min(row.offset + row.shape.numel(), first + buckets[b].shard());
    if (begin >= end) continue;
    ops::initialize(
        g, Stream::compute,
        {.y = g.external(weights[b], 2 * begin, row.name, DType::bf16, {end - begin}),
         .remainder = g.external(remainders[b], 2 * (begin - first), "remainder", DType::u16, {end - begin}),
         .seed = seed,
         .stream = stream_of(row.name),
         .first = begin - row.offset,
         .mean = row.mean(),
         .std = static_cast<float>(row.std)});
  }
  const Plan plan(std::move(g));
  stage_.device().replay(plan, bindings);
  stage_.device().synchronize();
}

void Optimizer::step() {
  stage_.device().replay(*step_, bindings_);
}

}  // namespace moesaic
