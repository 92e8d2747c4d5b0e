#pragma once
// Everything that one rank holds to run a model: mesh, groups, stage, gradients, optimizer. Made from a Config; used by
// training, evaluation, generation, inspection and the tests alike.
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "config/config.h"
#include "data/loader.h"
#include "grad/reducer.h"
#include "launch/launch.h"
#include "mesh/mesh.h"
#include "model/stage.h"
#include "optim/optimizer.h"
#include "schedule/schedule.h"
#include "train/batch_feed.h"

namespace moesaic {

/// What a step did, summed over all ranks; the same on every rank.
struct StepResult {
  double loss = 0;  // mean over counted tokens
  double aux_loss = 0, z_loss = 0;
  double grad_norm = 0;
  int64_t counted = 0;
  bool updated = false;                           // false: NaN or Inf, or nothing counted
  int64_t max_rows_asked = 0;                     // above the bound; 0 = none
  std::vector<std::vector<int64_t>> expert_load;  // [MoE layers][E]
  std::vector<int64_t> dropped;                   // [MoE layers] rows, by capacity and by the rows bound
  double data_wait = 0;                           // seconds that the slowest rank waited for its batches
};

/// The sequences at these positions of the data (Loader::train, or a test's own).
using BatchSource = std::function<Batch(std::span<const int64_t> positions)>;

class Session {
 public:
  /// Validates the configuration, then takes all memory. `training` false: weights only matter, no optimizer state.
  Session(const Config& config, Rank& rank, bool training = true);

  bool trains() const { return optimizer_ != nullptr; }
  /// First values of all weights.
  void initialize();

  /// One optimizer step on the global batch that starts at data position `position`. Does not repeat: a step that passed
  /// the rows bound changed nothing and says so in max_rows_asked.
  StepResult step(const BatchSource& source, int64_t position, double learning_rate);
  /// Raises the rows bound to hold at least `rows` rows per rank (with a margin). Throws Error when layout.on_overflow is stop.
  void grow_rows(int64_t rows);
  double rows_factor() const { return rows_factor_; }
  void set_rows_factor(double factor);

  struct Evaluation {
    double loss = 0;  // mean over counted tokens
    int64_t counted = 0;
  };
  /// Mean loss of `count` sequences, numbered from 0, given by `source`; sequences past the end count nothing. Where routing
  /// passes the rows bound, layout.on_overflow says what happens, as in training: the bound grows, rows are left out, or
  /// Error is thrown.
  Evaluation evaluate(const BatchSource& source, int64_t count);

  const Config& config() const { return config_; }
  const Mesh& mesh() const { return mesh_; }
  Rank& rank() { return rank_; }
  Stage& stage() { return *stage_; }
  Optimizer& optimizer() { return *optimizer_; }
  Reducer& reducer() { return *reducer_; }
  BatchFeed& feed() { return *feed_; }
  int64_t num_updates() const { return num_updates_; }
  void set_num_updates(int64_t updates) { num_updates_ = updates; }
  const RankShape& shape() const { return shape_; }

 private:
  std::unique_ptr<Communicator> group(const std::vector<int64_t>& ranks) { return rank_.communicator(ranks); }
  StepResult collect(int64_t counted, double data_wait);

  Config config_;
  Rank& rank_;
  Mesh mesh_;
  RankShape shape_;
  double rows_factor_;
  std::unique_ptr<Communicator> n_, e_, scope_, reduce_stage_, edp_, world_;
  std::unique_ptr<Stage> stage_;
  std::unique_ptr<Reducer> reducer_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<BatchFeed> feed_;
  Schedule schedule_;
  int64_t num_places_ = 0;  // micro-batches in flight
  int64_t num_updates_ = 0;
};

}  // namespace moesaic
