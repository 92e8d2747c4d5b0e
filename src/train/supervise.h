#pragma once
// A run that outlives its failures: the ranks are processes of this machine (or threads of one), and when one of them is killed,
// crashes or hangs, all are started again from the newest whole checkpoint.
#include <cstdint>
#include <string>
#include <vector>

#include "config/config.h"

namespace moesaic {

struct Supervision {
  int64_t processes = 0;               // one per rank; 0: one process, whose ranks are threads
  int64_t max_restarts = 0;            // in a row without a new checkpoint; 0: none
  std::vector<std::string> arguments;  // of `moesaic`, but for --resume
  std::vector<std::string> resume;     // how the first start resumes, if it does
};

/// Runs `moesaic` until it ends by itself, refuses something, is told to stop by a signal to this process, or has failed
/// more than max_restarts times since its last new checkpoint. A restart goes on from the newest whole checkpoint of the run's
/// folder, or does what the first start did where there is none; it is an event of the run ("failure"). Metrics of the steps
/// that are done again are cut when the run resumes (report/jsonl.h), so each step has one line. The pause before a restart
/// doubles, from 0.2 s to at most 10 s, until there is a new checkpoint.
/// Returns the exit code of the last start. Requires: this process has one thread. Throws IoError.
int supervise(const RunConfig& run, const Supervision& supervision);

}  // namespace moesaic
