#pragma once
// What a run writes into its folder and shows on the terminal; rank 0's. docs/formats/run_folder.md.
//
//   runs/<name>/config.toml  run.json  metrics.jsonl  events.jsonl  tensorboard/  traces/step_<N>.json  checkpoints/
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "config/config.h"
#include "report/event_log.h"
#include "report/jsonl.h"
#include "report/metrics.h"
#include "report/progress.h"
#include "report/prometheus.h"
#include "report/run_info.h"
#include "report/tensorboard.h"
#include "report/trace.h"

namespace moesaic {

/// "runs/<name>"
std::string run_folder(const RunConfig& run);
inline std::string checkpoint_folder(const RunConfig& run) {
  return run_folder(run) + "/checkpoints";
}

class RunLog {
 public:
  /// Makes the folder, writes the resolved configuration, cuts what an earlier run wrote at or after `first_step`, and opens
  /// the files. Progress goes to `out`. Throws IoError.
  RunLog(const Config& config, int64_t first_step, bool resumed, std::FILE* out);

  /// Writes run.json.
  void info(const RunInfo& info);
  void step(const StepMetrics& metrics, const RunPosition& position);
  void event(EventKind kind, int64_t step, const std::string& message);
  void trace(int64_t step, const std::vector<TraceEvent>& events);
  /// A line of text, without tearing the progress line.
  void say(const std::string& line);

 private:
  std::string folder_;
  std::FILE* out_;
  ProgressWriter progress_;
  std::unique_ptr<JsonLinesFile> metrics_;
  std::unique_ptr<EventLog> events_;
  std::unique_ptr<TensorBoardWriter> tensorboard_;
  std::unique_ptr<PrometheusFile> prometheus_;  // null when none is asked for
};

}  // namespace moesaic
