#include "train/trainer.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <mutex>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/units.h"
#include "config/counts.h"
#include "config/enum_names.h"
#include "config/print.h"
#include "data/read_ahead.h"
#include "optim/lr_schedule.h"
#include "report/table.h"
#include "train/initial_weights.h"
#include "train/run_checks.h"
#include "train/run_info.h"
#include "train/run_lock.h"
#include "train/saver.h"
#include "train/trace_gather.h"

namespace moesaic {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// A rank that stands still for several usual steps is stuck.
constexpr double kMediansToWait = 5;
constexpr int64_t kStepsOfMedian = 15;

constexpr double kLongWait = 1;  // seconds of waiting for a save that the user should hear of

class Trainer {
 public:
  Trainer(const Config& config, Rank& rank, const Loader& loader, const StopFlag& stop, std::FILE* out)
      : config_(config),
        rank_(rank),
        loader_(loader),
        stop_(stop),
        session_(config, rank),
        saver_(session_, checkpoint_folder(config.run), config.train.keep_last, config.run.save_timeout),
        // A rank's micro-batches follow each other at even distances, from one step to the next too.
        ahead_([&loader](std::span<const int64_t> positions) { return loader.train(positions); },
               config.layout.dp * config.train.micro_batch,
               std::max<int64_t>(2, session_.shape().num_micro_batches)) {
    std::string from;
    if (!config.run.resume.empty()) {
      from = agree_on_checkpoint(rank.control,
                                 config.run.resume == "auto" ? run_folder(config.run) : config.run.resume);
      state_ = load_checkpoint(session_, CheckpointReader(from, Verify::sizes));
      session_.set_num_updates(state_.num_updates);
      session_.set_rows_factor(std::max(state_.rows_factor, session_.rows_factor()));
      summary_.checkpoint = from;
      if (from.starts_with(checkpoint_folder(config.run) + "/")) saved_ = state_.step;
    } else if (!config.run.init.empty()) {
      start_from(config.run.init);
    } else {
      session_.initialize();
    }
    const RunInfo info = gather_run_info(config, session_.stage().spec(), rank);  // waits for all ranks
    if (rank.rank != 0) return;
    log_.emplace(config, state_.step, !from.empty(), out);
    log_->info(info);
    log_->say(describe());
    log_->say(memory_table(rank.device->arena(), saver_.snapshot_bytes()));
    if (from.empty())
      log_->event(EventKind::start, 0, started_);
    else
      log_->event(EventKind::restart, state_.step,
                  fmt::format("resumed at step {} from {}", state_.step, from));
  }

  TrainSummary run() {
    if (log_ && state_.step >= config_.train.steps)
      log_->say(fmt::format("all {} steps are done: raise train.steps to go on", config_.train.steps));
    while (proceed()) {
      const double begin = now();
      StepMetrics metrics = one_step();
      metrics.seconds = now() - begin;
      limit_time(metrics.seconds);
      state_.seconds += metrics.seconds;
      metrics.tokens_per_s =
          static_cast<double>(config_.train.global_batch * config_.train.seq_len) / metrics.seconds;
      if (const auto peak = peak_flops(config_.run.device))
        metrics.mfu = metrics.tokens_per_s * flops_per_token(config_.model, config_.train.seq_len) /
                      (*peak * static_cast<double>(rank_.world_size));
      ++state_.step;
      state_.position += config_.train.global_batch;
      state_.num_updates = session_.num_updates();
      summary_.loss = metrics.loss;
      if (config_.train.eval_every > 0 && state_.step % config_.train.eval_every == 0)
        metrics.val_loss = evaluate(config_.train.eval_sequences);
      report(metrics);
      tell(saver_.advance());
      if (config_.train.save_every > 0 && state_.step % config_.train.save_every == 0) save();
    }
    std::string how = "interrupted";
    if (!summary_.interrupted) {
      how = "finished";
      if (loader_.num_valid_samples() > 0) how += fmt::format(", held-out loss {:.6f}", evaluate(0));
    }
    save();
    tell(saver_.finish());
    summary_.steps = state_.step;
    summary_.seconds = state_.seconds;
    if (log_) log_->event(EventKind::stop, state_.step, how);
    return summary_;
  }

 private:
  /// A new run from the weights of a checkpoint: step 0, new optimizer state.
  void start_from(const std::string& path) {
    const std::string found = agree_on_checkpoint(rank_.control, path);
    const CheckpointReader reader(found, Verify::sizes);
    if (rank_.rank == 0)
      for (const std::string& difference : model_differences(config_, config_of(reader)))
        log_warning("run.init = {}: {}", path, difference);
    load_weights(session_, reader);
    started_ = fmt::format("started from the weights of {}", found);
  }

  /// Whether another step follows; the same answer on every rank. Rank 0's clock counts.
  bool proceed() {
    rank_.control.set_step(state_.step);
    rank_.control.set_operation("agree on the next step");
    const std::string mine = fmt::format("{} {}", stop_.load(), state_.seconds);
    const auto all = rank_.control.all_gather(mine);
    for (const std::string& other : all) summary_.interrupted |= other[0] != '0';
    state_.seconds = std::stod(all.front().substr(2));
    const TrainConfig& t = config_.train;
    return !summary_.interrupted && state_.step < t.steps &&
           (t.max_seconds <= 0 || state_.seconds < t.max_seconds);
  }

  /// After a step: how long others may wait for this rank in the next ones. Before that, run.join_timeout is the limit.
  void limit_time(double step_seconds) {
    step_seconds_[static_cast<size_t>(num_steps_++ % kStepsOfMedian)] = step_seconds;
    auto seconds = step_seconds_;
    const auto count = static_cast<std::ptrdiff_t>(std::min(num_steps_, kStepsOfMedian));
    std::nth_element(seconds.begin(), seconds.begin() + count / 2, seconds.begin() + count);
    time_limit_ =
        std::max(config_.run.comm_timeout, kMediansToWait * seconds[static_cast<size_t>(count / 2)]);
    rank_.control.set_time_limit(time_limit_);
  }

  double progress() const {
    const TrainConfig& t = config_.train;
    const double by_steps = static_cast<double>(state_.step) / static_cast<double>(t.steps);
    return t.max_seconds > 0 ? std::max(by_steps, state_.seconds / t.max_seconds) : by_steps;
  }

  StepMetrics one_step() {
    const TrainConfig& t = config_.train;
    const double lr = learning_rate(config_.optim, state_.step, t.steps, progress());
    const BatchSource source = [&](std::span<const int64_t> positions) { return ahead_.take(positions); };
    const bool traced =
        std::find(t.trace_steps.begin(), t.trace_steps.end(), state_.step) != t.trace_steps.end();
    std::vector<TraceEvent> events;
    if (traced) record_trace(rank_, events);
    StepResult result = session_.step(source, state_.position, lr);
    while (result.max_rows_asked > 0 && config_.layout.on_overflow != OverflowPolicy::drop) {
      grow_rows(result.max_rows_asked);
      const RunInfo info = gather_run_info(config_, session_.stage().spec(), rank_);
      if (log_) {
        log_->info(info);
        log_->event(EventKind::repeat, state_.step,
                    fmt::format("step {} is repeated: routing gave a rank {} rows; the bound is now {}",
                                state_.step, result.max_rows_asked, session_.stage().spec().max_rows));
        log_->say(memory_table(rank_.device->arena(), saver_.snapshot_bytes()));
      }
      result = session_.step(source, state_.position, lr);
    }
    if (traced) {
      rank_.device->set_trace({});
      const auto all = gather_trace(rank_, events);
      if (log_) log_->trace(state_.step, all);
    }
    const bool bad = !result.updated && result.counted > 0;
    num_skipped_ = bad ? num_skipped_ + 1 : 0;
    if (bad) skip();
    StepMetrics metrics;
    metrics.step = state_.step;
    metrics.loss = result.loss, metrics.aux_loss = result.aux_loss, metrics.z_loss = result.z_loss;
    metrics.grad_norm = result.grad_norm, metrics.lr = lr;
    metrics.expert_load = result.expert_load, metrics.dropped = result.dropped;
    metrics.data_wait_s = result.data_wait;
    metrics.skipped = bad, metrics.counted_tokens = result.counted;
    metrics.memory_bytes = memory_by_purpose(rank_.device->arena());
    return metrics;
  }

  void grow_rows(int64_t rows) {
    try {
      session_.grow_rows(rows);
    } catch (const Error& error) {
      fail<Error>("step {}: {}", state_.step, error.what());
    }
  }

  /// A step with NaN or Inf: nothing was updated. Says where, and gives up after too many.
  void skip() {
    std::string where;
    const auto all = rank_.control.all_gather(session_.reducer().find_nonfinite());
    for (size_t r = 0; r < all.size(); ++r)
      if (!all[r].empty()) where += fmt::format("{}rank {}: {}", where.empty() ? "" : "; ", r, all[r]);
    const std::string message = fmt::format("step {} was skipped: NaN or Inf in the gradient ({})",
                                            state_.step, where.empty() ? "the norm overflowed" : where);
    if (log_) log_->event(EventKind::skip, state_.step, message);
    require<Error>(num_skipped_ < config_.train.max_skipped,
                   "{}; {} steps in a row (train.max_skipped): lower optim.lr or look at the data", message,
                   num_skipped_);
  }

  double evaluate(int64_t count) {
    rank_.control.set_operation("evaluate");
    const int64_t held_out = loader_.num_valid_samples();
    if (held_out == 0) return 0;
    const BatchSource source = [&](std::span<const int64_t> numbers) { return loader_.valid(numbers); };
    const double loss = session_.evaluate(source, count > 0 ? std::min(count, held_out) : held_out).loss;
    summary_.val_loss = loss;
    return loss;
  }

  /// Begins to save this step. A save still under way is waited for first: none is left out.
  void save() {
    if (saved_ == state_.step) return;
    const double begin = now();
    tell(saver_.finish());
    if (const double waited = now() - begin; log_ && waited > kLongWait)
      log_->say(fmt::format("saving step {} had to wait {} for the save before it: raise train.save_every",
                            state_.step, format_seconds(waited)));
    state_.rows_factor = session_.rows_factor();
    rank_.control.set_time_limit(std::max(config_.run.save_timeout, time_limit_));
    saver_.start(state_);
    rank_.control.set_time_limit(time_limit_);
    saved_ = state_.step;
    if (!config_.train.save_async) tell(saver_.finish());
  }

  void tell(const std::optional<Saver::Saved>& saved) {
    if (!saved) return;
    summary_.checkpoint = saved->path;
    if (log_)
      log_->event(EventKind::save, saved->step,
                  fmt::format("saved step {} to {}; training stood still for {:.3f} s", saved->step,
                              saved->path, saved->held));
  }

  void report(const StepMetrics& metrics) {
    if (!log_) return;
    RunPosition position;
    position.num_steps = config_.train.max_seconds > 0 ? 0 : config_.train.steps;
    position.fraction = progress();
    position.eta_seconds = estimate_remaining(state_.seconds, 0, position.fraction);
    log_->step(metrics, position);
  }

  std::string describe() {
    const ModelCounts counts = count_model(config_.model);
    const LayerSpec& s = session_.stage().spec();
    return fmt::format(
        "model {}: {} parameters, {} active, {} per token\n{} ranks: dp {}, n {} ({} attention), e {} ({} "
        "dispatch), "
        "rebuild {}; {} tokens per step",
        config_.model.name, format_count(static_cast<double>(counts.total)),
        format_count(static_cast<double>(counts.active)),
        format_flops(flops_per_token(config_.model, config_.train.seq_len)), rank_.world_size,
        config_.layout.dp, config_.layout.n, name_of(config_.layout.attention), s.e,
        s.e == 1 ? "no" : name_of(s.layout.dispatch), name_of(config_.layout.rebuild),
        config_.train.global_batch * config_.train.seq_len);
  }

  const Config config_;
  Rank& rank_;
  const Loader& loader_;
  const StopFlag& stop_;
  Session session_;
  Saver saver_;
  ReadAhead ahead_;
  RunState state_;
  TrainSummary summary_;
  std::string started_ = "started";
  std::optional<RunLog> log_;
  int64_t num_skipped_ = 0, saved_ = -1;
  std::array<double, static_cast<size_t>(kStepsOfMedian)> step_seconds_{};  // of the last steps, as a ring
  int64_t num_steps_ = 0;                                                   // of this process
  double time_limit_ = std::max(config_.run.join_timeout, config_.run.comm_timeout);
};

}  // namespace

TrainSummary train(const Config& config, const StopFlag& stop, std::FILE* out) {
  check_runnable(config);
  const Loader loader = open_data(config, config.train.eval_every > 0);
  check_run_folder(config.run);
  TrainSummary summary;
  std::mutex mutex;
  bool known = false;
  run_ranks(
      config.run, Mesh(config.layout).world_size(),
      [&](Rank& rank) {
        const RunLock alone(rank.control, config.run);
        const TrainSummary mine = Trainer(config, rank, loader, stop, out).run();
        const std::lock_guard lock(mutex);
        if (rank.rank == 0 || !known) summary = mine;  // a process that is one of several may not hold rank 0
        known = true;
      },
      print_config(config));
  return summary;
}

Session::Evaluation evaluate_checkpoint(const Config& config, const std::string& checkpoint, int64_t count) {
  check_runnable(config);
  const Loader loader = open_data(config, true);
  Session::Evaluation evaluation;
  run_ranks(config.run, Mesh(config.layout).world_size(), [&](Rank& rank) {
    Session session(config, rank, false);
    load_weights(session, CheckpointReader(checkpoint, Verify::contents));
    const BatchSource source = [&](std::span<const int64_t> numbers) { return loader.valid(numbers); };
    const auto mine = session.evaluate(
        source, count > 0 ? std::min(count, loader.num_valid_samples()) : loader.num_valid_samples());
    if (rank.rank == 0) evaluation = mine;
  });
  return evaluation;
}

std::string memory_table(const Arena& arena, int64_t host_bytes) {
  Table table({{"memory per rank"}, {"bytes", Table::Align::right}, {"", Table::Align::right}});
  for (const auto& [purpose, bytes] : memory_by_purpose(arena))
    table.add_row({purpose, std::to_string(bytes), format_bytes(bytes)});
  table.add_rule();
  table.add_row({"sum", std::to_string(arena.bytes()), format_bytes(arena.bytes())});
  table.add_row({"host: copy to save", std::to_string(host_bytes), format_bytes(host_bytes)});
  return table.str();
}

}  // namespace moesaic
