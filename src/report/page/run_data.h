#pragma once
// All that a page shows of a run, read from its folder (docs/formats/run_folder.md). The folder may belong to a run that still
// goes on or that died: whatever is missing or damaged is left out and named in `notes`.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "report/page/metrics_reader.h"
#include "report/page/trace_reader.h"
#include "report/run_info.h"

namespace moesaic {

struct LoggedEvent {
  int64_t step = 0;
  std::string kind;  // as in events.jsonl
  double time = 0;   // seconds since 1970
  std::string message;
};

struct RunData {
  std::string folder;  // as it was given
  std::string name;    // its last part; the caller makes names of several runs distinct
  MetricColumns metrics;
  std::vector<LoggedEvent> events;                          // the newest kMaxEvents
  int64_t events_left_out = 0;                              // older ones
  std::optional<RunInfo> info;                              // run.json
  std::vector<std::pair<std::string, std::string>> config;  // "train.steps" -> "100", in the file's order
  std::string config_text;                                  // the file itself
  std::optional<Timeline> timeline;                         // of trace_step
  int64_t trace_step = 0;
  std::vector<std::string> notes;  // one sentence each

  static constexpr size_t kMaxEvents = 10'000;

  /// A value of the configuration as it stands there; empty when there is none.
  std::string setting(const std::string& key) const;
};

/// `trace_step`: whose timeline is shown; none: the newest there is. Throws IoError when `folder` holds neither metrics.jsonl
/// nor config.toml, so is no run's.
RunData read_run(const std::string& folder, std::optional<int64_t> trace_step);

/// The parts, on text. Keys of a TOML file as this project writes it: sections and "key = value" lines; others are passed over.
std::vector<std::pair<std::string, std::string>> flat_toml(const std::string& text);
std::vector<LoggedEvent> parse_events(std::string_view text, int64_t& damaged_lines);

}  // namespace moesaic
