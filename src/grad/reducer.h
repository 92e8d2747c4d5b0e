#pragma once
// Gradients of all replicas to the owner of each shard, and the step's verdict on them.
//
// Every bucket is reduce-scattered over the ranks that hold the same parameters (dense: all of the stage, in n-major
// order; experts: edp), in FP32, in place: a rank's shard is a part of its gradient bucket. The norm is the root of the
// sum of the shards' squares over all ranks: each real parameter lies in exactly one shard, so it counts once.
#include <memory>

#include "model/stage.h"

namespace moesaic {

/// The groups that gradients and parameters move in; outlive the reducer.
struct ReduceGroups {
  Communicator* stage = nullptr;  // n-major: rank = n_i * dp + dp_i
  Communicator* edp = nullptr;
  Communicator* world = nullptr;
  Communicator& of(Replicas replicas) const { return replicas == Replicas::stage ? *stage : *edp; }
};

class Reducer {
 public:
  Reducer(Stage& stage, const ReduceGroups& groups, double clip, bool drop_overflow);

  /// Zeroes statistics and the step's own scalars.
  void begin_step();
  /// Enqueues the reduction of every bucket and the sums of squares.
  void reduce();
  /// Enqueues norm, clipping factor and ok (StepScalars) from all ranks' sums, overflows and counts.
  void verdict();
  /// Enqueues the gathering of every bucket's updated weights.
  void gather();

  /// Expert counts of a layer summed over the stage (valid after verdict()): [L, E] i32.
  const std::byte* global_counts() const { return counts_all_; }
  int64_t shard_index(int32_t bucket) const;
  float* grad_shard(int32_t bucket) const;

  /// After a bad step: "layers.1.attention.q: 3 values" for the first tensors of this rank's shards with NaN or Inf, and how
  /// many more there are; empty if none.
  std::string find_nonfinite();

 private:
  Stage& stage_;
  ReduceGroups groups_;
  std::unique_ptr<Plan> begin_, reduce_, verdict_, gather_;
  std::vector<std::byte*> bindings_;
  std::byte *sums_, *all_sums_, *overflow_, *all_overflow_, *counts_, *counts_all_;
};

}  // namespace moesaic
