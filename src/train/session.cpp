#include "train/session.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/log.h"
#include "config/validate.h"
#include "layers/layer_spec.h"
#include "mesh/rules.h"
#include "model/parameters.h"
#include "schedule/check.h"
#include "train/tuning.h"

namespace moesaic {
namespace {

/// The stage's ranks in n-major order: shard index = n_i * dp + dp_i.
std::vector<int64_t> n_major(const Mesh& mesh, int64_t rank) {
  const int64_t pp = mesh.coords(rank).pp;
  std::vector<int64_t> ranks;
  for (int64_t n = 0; n < mesh.size(Axis::n); ++n)
    for (int64_t dp = 0; dp < mesh.size(Axis::dp); ++dp) ranks.push_back(mesh.rank_of(pp, dp, n));
  return ranks;
}

const Config& validated(const Config& config) {
  validate_values(config);
  validate_layout(config);
  return config;
}

/// What a rank adds to the job's sums after a step; sent as bytes.
struct Part {
  double loss, aux_loss, z_loss;
  int64_t counted, overflow;
  double data_wait;
};

std::string bytes_of(const Part& part) {
  return {reinterpret_cast<const char*>(&part), sizeof part};
}
Part part_of(const std::string& bytes) {
  Part part;
  MOESAIC_CHECK(bytes.size() >= sizeof part);
  std::memcpy(&part, bytes.data(), sizeof part);
  return part;
}

/// Batches of evaluation look like those of training; what is past the end counts nothing.
void blank_past_end(Batch& batch, std::span<const int64_t> numbers, int64_t count, int64_t S) {
  for (size_t b = 0; b < numbers.size(); ++b)
    if (numbers[b] >= count) std::fill_n(batch.targets.begin() + static_cast<std::ptrdiff_t>(b) * S, S, -1);
}

}  // namespace

Session::Session(const Config& config, Rank& rank, bool training)
    : config_(with_tuning(validated(config), rank.control)),
      rank_(rank),
      mesh_(config.layout),
      shape_(derive(config)),
      rows_factor_(config.layout.rows_factor) {
  MOESAIC_CHECK(rank.world_size == mesh_.world_size());
  n_ = group(mesh_.group(Axis::n, rank.rank));
  e_ = group(mesh_.group(Axis::e, rank.rank));
  scope_ = group(mesh_.group(scope_axis(config.balance.scope), rank.rank));
  reduce_stage_ = group(n_major(mesh_, rank.rank));
  edp_ = group(mesh_.group(Axis::edp, rank.rank));
  world_ = group(mesh_.group(Axis::world, rank.rank));
  schedule_ =
      make_schedule(ScheduleKind::one_forward_one_backward, config.layout.pp, 1, shape_.num_micro_batches);
  num_places_ = check_schedule(schedule_).max_in_flight[static_cast<size_t>(mesh_.coords(rank.rank).pp)];

  const LayerSpec spec =
      make_layer_spec(config_, mesh_, rank.rank, {n_.get(), e_.get(), scope_.get()}, rows_factor_);
  stage_ = std::make_unique<Stage>(spec, make_parameters(config_.model, mesh_, rank.rank, spec.placement),
                                   *rank.device, num_places_);
  feed_ = std::make_unique<BatchFeed>(*stage_);
  if (!training) return;
  reducer_ =
      std::make_unique<Reducer>(*stage_, ReduceGroups{reduce_stage_.get(), edp_.get(), world_.get()},
                                config_.optim.clip, config_.layout.on_overflow == OverflowPolicy::drop);
  optimizer_ = std::make_unique<Optimizer>(*stage_, *reducer_, config_.optim);
}

void Session::initialize() {
  stage_->initialize(config_.train.seed);
  if (!optimizer_) return;
  optimizer_->make_master(config_.train.seed);
  if (config_.train.compute == ComputeType::bf16)
    reducer_->gather();  // each replica's weights = the owners' masters
}

StepResult Session::step(const BatchSource& source, int64_t position, double learning_rate) {
  const int64_t dp = mesh_.size(Axis::dp), dp_i = mesh_.index(Axis::dp, rank_.rank),
                B = config_.train.micro_batch;
  std::vector<Batch> batches;
  int64_t mine = 0;
  const auto begin = std::chrono::steady_clock::now();
  for (int64_t m = 0; m < shape_.num_micro_batches; ++m) {
    std::vector<int64_t> positions;
    for (int64_t b = 0; b < B; ++b) positions.push_back(position + (m * dp + dp_i) * B + b);
    batches.push_back(source(positions));
    mine += batches.back().num_counted;
  }
  const std::chrono::duration<double> data_wait = std::chrono::steady_clock::now() - begin;
  const bool speaks = mesh_.index(Axis::n, rank_.rank) == 0;  // for its replica
  const int64_t counted = rank_.control.sum(speaks ? mine : 0);
  const auto t = static_cast<double>(num_updates_ + 1);
  reducer_->begin_step();
  feed_->send_scalars(counted, learning_rate, 1 - std::pow(config_.optim.beta1, t),
                      1 - std::pow(config_.optim.beta2, t), false);
  const auto& actions = schedule_.ranks[static_cast<size_t>(mesh_.coords(rank_.rank).pp)];
  for (const Action& action : actions) {
    const int64_t place = action.micro_batch % num_places_;
    switch (action.kind) {
      case ActionKind::forward:
        feed_->send(batches[static_cast<size_t>(action.micro_batch)], action.micro_batch, place);
        stage_->forward(place, action.micro_batch == 0);
        break;
      case ActionKind::backward:
        stage_->backward(place, action.micro_batch == 0);
        break;
      case ActionKind::reduce:
        reducer_->reduce();
        break;
      case ActionKind::step:
        reducer_->verdict();
        optimizer_->step();
        break;
      case ActionKind::gather:
        reducer_->gather();
        break;
      default:
        MOESAIC_CHECK(false, "{}", describe(action));
    }
  }
  StepResult result = collect(counted, data_wait.count());
  if (result.updated) ++num_updates_;
  return result;
}

StepResult Session::collect(int64_t counted, double data_wait) {
  const ModelConfig& m = config_.model;
  const int64_t E = m.num_experts, per_layer = LayerStats::bytes(E);
  std::vector<std::byte> step(StepScalars::kBytes), stats(static_cast<size_t>(stage_->stats_bytes()));
  std::vector<int32_t> counts(static_cast<size_t>(m.num_layers * E));
  Device& device = *rank_.device;
  device.fetch(step.data(), stage_->step_scalars(), StepScalars::kBytes);
  device.fetch(stats.data(), stage_->stats(), stage_->stats_bytes());
  device.fetch(counts.data(), reducer_->global_counts(), static_cast<int64_t>(counts.size()) * 4);
  const auto number = [](const std::vector<std::byte>& from, int64_t at, auto zero) {
    std::memcpy(&zero, from.data() + at, sizeof zero);
    return zero;
  };
  StepResult result;
  result.counted = counted;
  result.grad_norm = number(step, StepScalars::kGradNorm, 0.0f);
  result.updated = number(step, StepScalars::kOk, 0) != 0;
  // The ranks of a scope's group all hold the whole scope's balance loss: one of them speaks. z-loss and drops are each rank's own.
  const bool speaks = scope_->rank() == 0;
  Part part{number(step, StepScalars::kLoss, 0.0f), 0, 0, number(step, StepScalars::kSeen, 0), 0, data_wait};
  std::string rows;  // of each layer: dropped by capacity, computed
  for (int64_t i = m.num_dense_layers; i < m.num_layers; ++i) {
    const int64_t at = i * per_layer;
    part.aux_loss += speaks ? number(stats, at + LayerStats::kAux, 0.0f) : 0;
    part.z_loss += number(stats, at + LayerStats::kZ, 0.0f);
    part.overflow = std::max<int64_t>(part.overflow, number(stats, at + LayerStats::kOverflow, 0));
    for (const int64_t field : {LayerStats::kDropped, LayerStats::kRows})
      rows.append(reinterpret_cast<const char*>(stats.data() + at + field), 4);
    result.expert_load.emplace_back(counts.begin() + i * E, counts.begin() + (i + 1) * E);
  }
  // Where the rows bound may leave rows out, what it or capacity dropped is what no expert has computed.
  const bool may_leave_out = config_.layout.on_overflow == OverflowPolicy::drop;
  const int64_t chosen = config_.train.global_batch * config_.train.seq_len * m.top_k;
  result.dropped.assign(rows.size() / 8, may_leave_out ? chosen : 0);
  int64_t seen = 0;
  for (const std::string& other : rank_.control.all_gather(bytes_of(part) + rows)) {
    const Part p = part_of(other);
    result.loss += p.loss;
    result.aux_loss += p.aux_loss;
    result.z_loss += p.z_loss;
    seen += p.counted;
    result.data_wait = std::max(result.data_wait, p.data_wait);
    result.max_rows_asked = std::max(result.max_rows_asked, p.overflow);
    for (size_t i = 0; i < result.dropped.size(); ++i) {
      std::array<int32_t, 2> of_layer{};
      std::memcpy(of_layer.data(), other.data() + sizeof(Part) + 8 * i, 8);
      const auto [dropped, computed] = of_layer;
      result.dropped[i] += may_leave_out ? -computed : dropped;
    }
  }
  MOESAIC_CHECK(device.kind() == DeviceKind::null || seen == counted, "{} tokens seen, {} counted", seen,
                counted);
  result.loss = counted > 0 ? result.loss / static_cast<double>(counted) : 0;
  return result;
}

void Session::set_rows_factor(double factor) {
  if (factor == rows_factor_) return;
  rows_factor_ = factor;
  rank_.device->synchronize();
  for (const auto* group : {&n_, &e_, &scope_, &reduce_stage_, &edp_, &world_}) (*group)->forget_memory();
  rank_.control.barrier();  // from here on nobody holds on to memory of another rank
  stage_->rebuild(make_layer_spec(config_, mesh_, rank_.rank, {n_.get(), e_.get(), scope_.get()}, factor));
}

void Session::grow_rows(int64_t rows) {
  require<Error>(
      config_.layout.on_overflow != OverflowPolicy::stop,
      "routing gave a rank {} rows, above the bound of {}; raise layout.rows_factor (now {}) or set "
      "layout.on_overflow to repeat or drop",
      rows, stage_->spec().max_rows, rows_factor_);
  const auto mean = static_cast<double>(shape_.num_tokens * config_.model.top_k);
  set_rows_factor(std::max(rows_factor_, 1.1 * static_cast<double>(rows) / mean));
}

Session::Evaluation Session::evaluate(const BatchSource& source, int64_t count) {
  const int64_t dp = mesh_.size(Axis::dp), dp_i = mesh_.index(Axis::dp, rank_.rank),
                B = config_.train.micro_batch;
  const int64_t S = config_.train.seq_len;
  Device& device = *rank_.device;
  for (;;) {
    const std::vector<std::byte> zero(
        static_cast<size_t>(std::max(stage_->stats_bytes(), StepScalars::kBytes)));
    device.store(stage_->evaluation_scalars(), zero.data(), StepScalars::kBytes);
    device.store(stage_->evaluation_stats(), zero.data(), stage_->stats_bytes());
    for (int64_t first = 0; first < count; first += dp * B) {
      std::vector<int64_t> numbers;
      for (int64_t b = 0; b < B; ++b) numbers.push_back(first + dp_i * B + b);
      Batch batch = source(numbers);
      blank_past_end(batch, numbers, count, S);
      device.synchronize();  // the staging memory is used again
      feed_->send(batch, 0, 0);
      stage_->evaluate();
    }
    std::vector<std::byte> step(StepScalars::kBytes), stats(static_cast<size_t>(stage_->stats_bytes()));
    device.fetch(step.data(), stage_->evaluation_scalars(), StepScalars::kBytes);
    device.fetch(stats.data(), stage_->evaluation_stats(), stage_->stats_bytes());
    Part part{};
    float loss = 0;
    int32_t seen = 0, overflow = 0;
    std::memcpy(&loss, step.data() + StepScalars::kLoss, 4);
    std::memcpy(&seen, step.data() + StepScalars::kSeen, 4);
    part.loss = loss, part.counted = seen;
    for (int64_t i = 0; i < config_.model.num_layers; ++i) {
      std::memcpy(&overflow,
                  stats.data() + i * LayerStats::bytes(config_.model.num_experts) + LayerStats::kOverflow, 4);
      part.overflow = std::max<int64_t>(part.overflow, overflow);
    }
    Evaluation evaluation;
    int64_t asked = 0;
    for (const std::string& other : rank_.control.all_gather(bytes_of(part))) {
      const Part p = part_of(other);
      evaluation.loss += p.loss;
      evaluation.counted += p.counted;
      asked = std::max(asked, p.overflow);
    }
    if (asked > 0 && config_.layout.on_overflow != OverflowPolicy::drop) {
      grow_rows(asked);
      continue;
    }
    if (evaluation.counted > 0) evaluation.loss /= static_cast<double>(evaluation.counted);
    return evaluation;
  }
}

}  // namespace moesaic
