#pragma once
// What one training step reports: the line of metrics.jsonl, the TensorBoard scalars and the progress line
// all come from this one struct. Key names and meanings are specified in docs/formats/run_folder.md.
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace moesaic {

struct StepMetrics {
  int64_t step = 0;                // index of the step, from 0
  double loss = 0;                 // cross-entropy, nats per counted token, without the terms below
  std::optional<double> val_loss;  // held-out loss, on steps that evaluate
  double aux_loss = 0;             // balance loss, as weighted into the objective
  double z_loss = 0;               // router z-loss, as weighted into the objective
  double grad_norm = 0;            // global norm before clipping
  double lr = 0;
  double tokens_per_s = 0;    // all tokens of the step, all ranks, per second of wall time
  std::optional<double> mfu;  // fraction of the device's peak, 0 to 1; absent where no peak is known (CPU)
  std::vector<std::pair<std::string, int64_t>>
      memory_bytes;                               // of this rank, by purpose, in the memory table's order
  std::vector<std::vector<int64_t>> expert_load;  // [MoE layers][E], tokens routed, all ranks
  std::vector<int64_t> dropped;                   // [MoE layers], dropped by capacity or the rows bound
  bool skipped = false;                           // NaN or Inf was found and nothing was updated
  int64_t counted_tokens = 0;                     // tokens that the loss is averaged over, all ranks
  double seconds = 0;                             // wall time of the step
  double data_wait_s = 0;                         // of it, what the slowest rank waited for its batches
};

/// One JSON object on one line, without the newline; "step" is its first key. NaN and infinity become null.
std::string to_json_line(const StepMetrics& metrics);

/// The largest ratio, over the layers, of the busiest expert's load to the mean load: 1 is perfect balance, E
/// the worst. 1 when nothing was routed.
double expert_balance(const std::vector<std::vector<int64_t>>& expert_load);

}  // namespace moesaic
