#pragma once
// metrics.jsonl as columns, for looking at: any length, any damage. Format: docs/formats/run_folder.md.
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "report/page/load_history.h"
#include "report/run_info.h"

namespace moesaic {

/// One entry per step; NaN where a line has none or null.
struct MetricColumns {
  std::vector<double> step;  // strictly ascending
  std::vector<double> loss, val_loss, aux_loss, z_loss, grad_norm, lr, tokens_per_s, mfu, counted_tokens,
      seconds, dropped;
  std::vector<double> balance;  // the worst layer's busiest expert over the mean
  std::vector<char> skipped;
  LoadHistory load;
  MemoryByPurpose memory;     // rank 0's, of the last step
  int64_t damaged_lines = 0;  // passed over: not JSON, without a step, or a step that does not ascend

  size_t size() const { return step.size(); }
};

/// Reads the file line by line; memory does not grow with what a line holds apart from the numbers above. An unfinished last
/// line is passed over in silence: the process that wrote it was stopped, or is still writing. Throws IoError when there is
/// no such file.
MetricColumns read_metrics(const std::string& path);

/// The same from text.
MetricColumns parse_metrics(std::string_view text);

}  // namespace moesaic
