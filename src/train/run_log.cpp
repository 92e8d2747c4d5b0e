#include "train/run_log.h"

#include "base/error.h"
#include "base/file.h"
#include "config/print.h"

namespace moesaic {

std::string run_folder(const RunConfig& run) {
  return run.folder + "/" + run.name;
}

RunLog::RunLog(const Config& config, int64_t first_step, bool resumed, std::FILE* out)
    : folder_(run_folder(config.run)), out_(out), progress_(out, terminal_columns(out), 20) {
  make_folders(folder_ + "/traces");
  if (!config.run.prometheus.empty())  // before the rest: a wrong path should cost nothing that an earlier run wrote
    prometheus_ = std::make_unique<PrometheusFile>(config.run.prometheus, config.run.name);
  AtomicFile resolved(folder_ + "/config.toml");
  resolved.write(print_config(config));
  resolved.commit();
  if (resumed)
    cut_from_step(folder_ + "/metrics.jsonl", first_step);
  else
    remove_tree(folder_ + "/metrics.jsonl");
  metrics_ = std::make_unique<JsonLinesFile>(folder_ + "/metrics.jsonl");
  events_ = std::make_unique<EventLog>(folder_ + "/events.jsonl");
  tensorboard_ = std::make_unique<TensorBoardWriter>(folder_ + "/tensorboard", first_step);
}

void RunLog::info(const RunInfo& info) {
  write_run_info(folder_ + "/run.json", info);
}

void RunLog::step(const StepMetrics& metrics, const RunPosition& position) {
  metrics_->write(to_json_line(metrics));
  tensorboard_->write(metrics.step, scalars_of(metrics));
  progress_.update(metrics, position);
  try {
    if (prometheus_) prometheus_->write(metrics);
  } catch (const IoError& error) {  // a run is worth more than a look at it
    say(fmt::format("{}; run.prometheus is not written any more", error.what()));
    prometheus_.reset();
  }
}

void RunLog::event(EventKind kind, int64_t step, const std::string& message) {
  events_->write({kind, step, message});
  if (kind != EventKind::start && kind != EventKind::stop) say(message);
}

void RunLog::trace(int64_t step, const std::vector<TraceEvent>& events) {
  write_chrome_trace(folder_ + "/traces/step_" + std::to_string(step) + ".json", events);
}

void RunLog::say(const std::string& line) {
  progress_.clear();
  std::fprintf(out_, "%s\n", line.c_str());
  std::fflush(out_);
}

}  // namespace moesaic
