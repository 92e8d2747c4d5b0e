#pragma once
// The sharded optimizer (ZeRO-1: Rajbhandari et al., 2020): each rank holds state for its shard of each bucket and
// updates the weights there; Reducer::gather brings the updated weights to all replicas.
#include <memory>

#include "grad/reducer.h"
#include "ops/optimizer/optimizer.h"

namespace moesaic {

class Optimizer {
 public:
  /// Takes its state from the device's arena. The stage's weights must hold their first values before make_master().
  Optimizer(Stage& stage, Reducer& reducer, const OptimConfig& config);

  /// BF16 weights: sets the lower half of the master weights from FP32 first values (`seed` as in Stage::initialize). FP32: nothing.
  void make_master(uint64_t seed);

  /// Enqueues the update of all shards and of the router biases. `learning`: learning rate and bias corrections are taken
  /// from StepScalars; nothing changes when its ok is 0.
  void step();

  /// State arrays of a shard, in the order of kinds(); each has bucket.shard() elements.
  struct State {
    std::string kind;  // "exp_avg", "exp_avg_sq", "momentum", "remainder"
    DType dtype;
    std::vector<std::byte*> shards;  // [bucket]
  };
  const std::vector<State>& states() const { return states_; }
  Reducer& reducer() { return reducer_; }

 private:
  /// Where in this rank's shard of a bucket weight decay applies.
  std::vector<ops::ElementRange> decayed(int32_t bucket) const;
  std::byte* state(const char* kind, size_t bucket) const;

  Stage& stage_;
  Reducer& reducer_;
  OptimConfig config_;
  std::vector<State> states_;
  std::unique_ptr<Plan> step_;
  Bindings bindings_;
};

}  // namespace moesaic
