#pragma once
// events.jsonl: what happened to a run apart from its steps. A history: a resumed run adds to it and cuts
// nothing, so one step may occur twice. Format: docs/formats/run_folder.md.
#include <cstdint>
#include <string>

#include "report/jsonl.h"

namespace moesaic {

enum class EventKind {
  start,    // the first step of a new run is about to run
  restart,  // a resumed run goes on at this step
  skip,     // NaN or Inf: this step updated nothing
  repeat,   // this step is run again with a larger bound on rows
  save,     // the checkpoint of this step was published
  stop,     // the run ended after this step
  failure,  // ranks died or hung: the run goes back to this step, or is given up
};

struct RunEvent {
  EventKind kind = EventKind::start;
  int64_t step = 0;
  std::string
      message;  // one clear sentence with the names and numbers that matter (tensor, rank, path, bound)
};

/// One JSON object on one line. `unix_seconds` is the wall clock. Bytes that are not UTF-8 are replaced.
std::string to_json_line(const RunEvent& event, double unix_seconds);

class EventLog {
 public:
  /// Opens `path` for appending as JsonLinesFile does. Throws IoError.
  explicit EventLog(const std::string& path) : file_(path) {}
  /// Appends the event with the present time. Throws IoError.
  void write(const RunEvent& event);

 private:
  JsonLinesFile file_;
};

}  // namespace moesaic
