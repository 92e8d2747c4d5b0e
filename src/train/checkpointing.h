#pragma once
// A session to a checkpoint and back, by logical tensor names, so that any layout loads what any layout saved.
//
// Kinds: "weight" (each rank writes the shard it owns), the optimizer's state ("exp_avg", "exp_avg_sq", "momentum",
// "remainder": the lower half of a BF16 master), and "router_bias" (rank 0). docs/formats/checkpoint.md.
#include <limits>
#include <string>

#include "checkpoint/reader.h"
#include "train/session.h"

namespace moesaic {

/// The state of a run apart from tensors.
struct RunState {
  int64_t step = 0;         // the next step
  int64_t position = 0;     // of the data: sequences consumed
  int64_t num_updates = 0;  // optimizer updates done
  double rows_factor = 0;   // the rows bound in force
  double seconds = 0;       // of training so far
};

/// Fills the session's weights, and when it trains its optimizer state and router biases, and returns the run's state.
/// Called by every rank with its own reader.
RunState load_checkpoint(Session& session, const CheckpointReader& reader);

/// The configuration that a checkpoint's run had.
Config config_of(const CheckpointReader& reader);

/// The checkpoint that a user means: a checkpoint folder itself, or the newest whole one of a run folder, of a step below
/// `before`. Throws IoError when there is none.
std::string find_checkpoint(const std::string& path, int64_t before = std::numeric_limits<int64_t>::max());

/// What `path` means to all ranks of a job, its bytes verified by all of them together. A damaged one is passed over for an
/// older one, with a warning, when `path` is a run folder; a checkpoint that was named is not. Throws IoError on every rank.
std::string agree_on_checkpoint(Control& control, const std::string& path);

}  // namespace moesaic
