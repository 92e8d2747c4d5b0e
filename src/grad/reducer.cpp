#include "grad/reducer.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "comm/collectives.h"
#include "ops/elementwise/elementwise.h"
#include "ops/norm/norm.h"

namespace moesaic {
namespace {

constexpr Stream kCompute = Stream::compute, kComm = Stream::comm, kReduce = Stream::reduce;

/// Every program here has the same slots: gradients and weights of each bucket, then the step's small tensors.
struct Slots {
  Slots(Program& g, const ParameterTable& table) {
    for (const Bucket& b : table.buckets()) grads.push_back(g.slot("gradients " + b.name));
    for (const Bucket& b : table.buckets()) weights.push_back(g.slot("weights " + b.name));
    step = g.slot("step");
    stats = g.slot("layer stats");
    sums = g.slot("sums of squares");
    all_sums = g.slot("all sums of squares");
    overflow = g.slot("overflow");
    all_overflow = g.slot("all overflow");
    counts = g.slot("expert counts");
    all_counts = g.slot("all expert counts");
  }
  std::vector<Slot> grads, weights;
  Slot step, stats, sums, all_sums, overflow, all_overflow, counts, all_counts;
};

/// This rank's shard of `whole` becomes the sum of everybody's.
void reduce_bucket(Program& g, Communicator& group, Handle whole, const Bucket& bucket) {
  if (g.device() != DeviceKind::cuda)
    return comm::reduce_scatter_in_place(g, kReduce, group, whole, bucket.name);
  // Moved by copy engines, then summed: a kernel that waits for a link would hold multiprocessors that the backward pass needs.
  const int64_t shard = bucket.shard();
  const Handle others = g.temp("others " + bucket.name, DType::f32, {(group.size() - 1) * shard}),
               own = g.view(whole, group.rank() * shard, {shard});
  comm::exchange_parts(g, kReduce, group, whole, others, bucket.name);
  ops::sum_parts(g, kReduce, {.own = own, .others = others, .y = own, .rank = group.rank()});
}

}  // namespace

int64_t Reducer::shard_index(int32_t bucket) const {
  return groups_.of(stage_.table().buckets()[static_cast<size_t>(bucket)].replicas).rank();
}

float* Reducer::grad_shard(int32_t bucket) const {
  return stage_.grads(bucket) +
         shard_index(bucket) * stage_.table().buckets()[static_cast<size_t>(bucket)].shard();
}

Reducer::Reducer(Stage& stage, const ReduceGroups& groups, double clip, bool drop_overflow)
    : stage_(stage), groups_(groups) {
  const auto& buckets = stage.table().buckets();
  const auto num_buckets = static_cast<int64_t>(buckets.size());
  const int64_t L = stage.spec().model.num_layers, E = stage.spec().model.num_experts,
                world = groups.world->size();
  Device& device = stage.device();
  Arena& arena = device.arena();
  sums_ = arena.allocate(Purpose::buffers, "sums of squares", 4 * num_buckets);
  all_sums_ = arena.allocate(Purpose::buffers, "all sums of squares", 4 * num_buckets * world);
  overflow_ = arena.allocate(Purpose::buffers, "overflow", 4 * L);
  all_overflow_ = arena.allocate(Purpose::buffers, "all overflow", 4 * L * world);
  counts_ = arena.allocate(Purpose::buffers, "expert counts", 4 * L * E);
  counts_all_ = arena.allocate(Purpose::buffers, "all expert counts", 4 * L * E);

  bindings_ = {nullptr};
  for (int32_t b = 0; b < num_buckets; ++b) bindings_.push_back(reinterpret_cast<std::byte*>(stage.grads(b)));
  for (int32_t b = 0; b < num_buckets; ++b) bindings_.push_back(stage.weights(b));
  for (std::byte* p : {stage.step_scalars(), stage.stats(), sums_, all_sums_, overflow_, all_overflow_,
                       counts_, counts_all_})
    bindings_.push_back(p);

  const auto bucket_tensor = [&](Program& g, const std::vector<Slot>& slots, size_t b, DType type) {
    return g.external(slots[b], 0, buckets[b].name, type, {buckets[b].padded});
  };
  const int64_t stats_words = stage.stats_bytes() / 4, per_layer = LayerStats::bytes(E);
  {
    Program g("begin step", device.kind());
    const Slots s(g, stage.table());
    ops::zero(g, kCompute, g.external(s.stats, 0, "layer stats", DType::f32, {stats_words}));
    ops::zero(g, kCompute,
              g.external(s.step, StepScalars::kLoss, "step results", DType::f32,
                         {(StepScalars::kBytes - StepScalars::kLoss) / 4}));
    begin_ = std::make_unique<Plan>(std::move(g));
  }
  {
    Program g("reduce gradients", device.kind());
    g.segment("reduce");
    const Slots s(g, stage.table());
    // Each waits for its own gradients alone. They come in the order of the backward pass, so that a bucket travels while the
    // layers below work; what is not exchanged is squared while the last ones travel.
    std::vector<size_t> order(buckets.size());
    std::iota(order.rbegin(), order.rend(), size_t{0});
    for (const size_t b : order)
      if (Communicator& group = groups.of(buckets[b].replicas); group.size() > 1)
        reduce_bucket(g, group, bucket_tensor(g, s.grads, b, DType::f32), buckets[b]);
    std::stable_partition(order.begin(), order.end(),
                          [&](size_t b) { return groups.of(buckets[b].replicas).size() == 1; });
    for (const size_t b : order) {
      const Handle whole = bucket_tensor(g, s.grads, b, DType::f32);
      const int64_t shard = buckets[b].shard();
      ops::sum_of_squares(g, kCompute, g.view(whole, groups.of(buckets[b].replicas).rank() * shard, {shard}),
                          g.external(s.sums, 4 * static_cast<int64_t>(b), "sum", DType::f32, {1}));
    }
    reduce_ = std::make_unique<Plan>(std::move(g));
  }
  {
    Program g("verdict", device.kind());
    g.segment("verdict");
    const Slots s(g, stage.table());
    for (int64_t i = 0; i < L; ++i) {
      const auto at = [&](int64_t field, const char* name, int64_t count) {
        return g.external(s.stats, i * per_layer + field, name, DType::i32, {count});
      };
      ops::copy(g, kReduce, at(LayerStats::kOverflow, "overflow", 1),
                g.external(s.overflow, 4 * i, "overflow", DType::i32, {1}));
      ops::copy(g, kReduce, at(LayerStats::kCounts, "counts", E),
                g.external(s.counts, 4 * i * E, "counts", DType::i32, {E}));
    }
    const Handle sums = g.external(s.sums, 0, "sums", DType::f32, {num_buckets});
    const Handle all_sums = g.external(s.all_sums, 0, "all sums", DType::f32, {num_buckets * world});
    const Handle overflow = g.external(s.overflow, 0, "overflow", DType::i32, {L});
    const Handle all_overflow = g.external(s.all_overflow, 0, "all overflow", DType::i32, {L * world});
    const Handle counts = g.external(s.counts, 0, "counts", DType::i32, {L * E});
    const Handle all_counts = g.external(s.all_counts, 0, "all counts", DType::i32, {L * E});
    comm::all_gather(g, kReduce, *groups.world, sums, all_sums, "sums of squares");
    comm::all_gather(g, kReduce, *groups.world, overflow, all_overflow, "overflow");
    comm::all_reduce(g, kReduce, *groups.stage, counts, all_counts, "expert counts");
    const StepScalars step(g, s.step);
    ops::verdict(g, kReduce,
                 {.parts = all_sums,
                  .overflow = all_overflow,
                  .counted = step.counted,
                  .grad_norm = step.grad_norm,
                  .clip_scale = step.clip_scale,
                  .ok = step.ok,
                  .clip = static_cast<float>(clip),
                  .drop_overflow = drop_overflow});
    verdict_ = std::make_unique<Plan>(std::move(g));
  }
  {
    Program g("gather weights", device.kind());
    g.segment("gather");
    const Slots s(g, stage.table());
    for (size_t b = 0; b < buckets.size(); ++b)
      if (Communicator& group = groups.of(buckets[b].replicas); group.size() > 1)
        // Beside the optimizer, which works on the next bucket on its own stream.
        comm::all_gather_in_place(g, kComm, group, bucket_tensor(g, s.weights, b, stage.spec().dtype),
                                  buckets[b].name);
    gather_ = std::make_unique<Plan>(std::move(g));
  }
  int64_t workspace = 0;
  for (const Plan* plan : {begin_.get(), reduce_.get(), verdict_.get(), gather_.get()})
    workspace = std::max(workspace, plan->workspace_bytes());
  bindings_.front() = arena.allocate(Purpose::buffers, "workspace of the reduction", workspace);
}

void Reducer::begin_step() {
  stage_.device().replay(*begin_, bindings_);
}
void Reducer::reduce() {
  stage_.device().replay(*reduce_, bindings_);
}
void Reducer::verdict() {
  stage_.device().replay(*verdict_, bindings_);
}
void Reducer::gather() {
  stage_.device().replay(*gather_, bindings_);
}

std::string Reducer::find_nonfinite() {
  constexpr int kNamed = 3;
  std::string text;
  std::vector<float> values;
  int found = 0;
  for (const ParameterRow& row : stage_.table().rows()) {
    const Bucket& bucket = stage_.table().buckets()[static_cast<size_t>(row.bucket)];
    const int64_t first = shard_index(row.bucket) * bucket.shard();
    const int64_t begin = std::max(row.offset, first);
    const int64_t end = std::min(row.offset + row.shape.numel(), first + bucket.shard());
    if (begin >= end) continue;
    values.resize(static_cast<size_t>(end - begin));
    stage_.device().fetch(values.data(), stage_.grads(row.bucket) + begin, 4 * (end - begin));
    const auto bad = std::count_if(values.begin(), values.end(), [](float x) { return !std::isfinite(x); });
    if (bad > 0 && found++ < kNamed)
      text += fmt::format("{}{}: {} values", text.empty() ? "" : ", ", row.name, bad);
  }
  return found > kNamed ? fmt::format("{}, and {} more tensors", text, found - kNamed) : text;
}

}  // namespace moesaic
