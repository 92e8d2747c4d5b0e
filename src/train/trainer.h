#pragma once
// A training run on one rank: steps, what may go wrong in one, evaluation, saving, and the log of rank 0.
#include <atomic>
#include <cstdio>
#include <optional>

#include "train/checkpointing.h"
#include "train/run_log.h"
#include "train/session.h"

namespace moesaic {

/// Set by a signal handler: 1 = finish the step, save and leave.
using StopFlag = std::atomic<int>;

struct TrainSummary {
  int64_t steps = 0;               // done, all runs of this name together
  double seconds = 0;              // of training, evaluation and saving apart
  std::optional<double> loss;      // of the last step; none when there was nothing left to do
  std::optional<double> val_loss;  // of the last evaluation; none when nothing is held out
  std::string checkpoint;          // the last one
  bool interrupted = false;
};

/// Trains as `config` says, on run.device, one thread per rank; progress goes to `out`. Throws the errors of design
/// section 7. `stop` may be set at any time.
TrainSummary train(const Config& config, const StopFlag& stop, std::FILE* out);

/// Held-out loss of a checkpoint under `config` (its own, with the caller's layout): `count` sequences, 0 = all.
Session::Evaluation evaluate_checkpoint(const Config& config, const std::string& checkpoint, int64_t count);

/// What the arena holds, by purpose and in all, as a table, and apart from that what a save takes in host memory.
std::string memory_table(const Arena& arena, int64_t host_bytes);

}  // namespace moesaic
