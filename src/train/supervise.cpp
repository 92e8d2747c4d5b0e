#include "train/supervise.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/file.h"
#include "base/log.h"
#include "checkpoint/folder.h"
#include "launch/exit_code.h"
#include "launch/processes.h"
#include "report/event_log.h"
#include "report/jsonl.h"
#include "train/run_log.h"

namespace moesaic {
namespace {

constexpr double kFirstPause = 0.2, kLongestPause = 10;

/// Where the run goes on, and how many steps behind the last one that was logged that is.
struct Return {
  int64_t step = 0, lost = 0;
  std::string text() const {
    return fmt::format("from {}; {} step{} done again", step > 0 ? fmt::format("step {}", step) : "the start",
                       lost, lost == 1 ? " is" : "s are");
  }
};

Return find_return(const RunConfig& run, int64_t checkpoint) {
  Return back{.step = std::max<int64_t>(checkpoint, 0)};
  if (const auto last = last_step(run_folder(run) + "/metrics.jsonl"))
    back.lost = std::max<int64_t>(*last + 1 - back.step, 0);
  return back;
}

void write_event(const RunConfig& run, int64_t step, const std::string& message) {
  log_info("{}", message);
  make_folders(run_folder(run));
  EventLog(run_folder(run) + "/events.jsonl").write({EventKind::failure, step, message});
}

}  // namespace

int supervise(const RunConfig& run, const Supervision& supervision) {
  LocalJob job(supervision.processes, run.control_port);
  std::vector<std::string> resume = supervision.resume;
  int64_t in_a_row = 0, number = 0, last_checkpoint = -1;
  for (;;) {
    std::vector<std::string> arguments = supervision.arguments;
    arguments.insert(arguments.end(), resume.begin(), resume.end());
    const JobEnd end = job.run(arguments);
    if (!end.failed || end.stopped || supervision.max_restarts == 0) return end.code;
    const int64_t checkpoint = find_latest_checkpoint(checkpoint_folder(run)).step;
    if (checkpoint > last_checkpoint) in_a_row = 0;
    last_checkpoint = std::max(last_checkpoint, checkpoint);
    const Return back = find_return(run, checkpoint);
    if (in_a_row == supervision.max_restarts) {
      write_event(run, back.step,
                  fmt::format("the job failed: {}; given up after {} restarts without a new checkpoint",
                              end.what, in_a_row));
      return end.code;
    }
    ++in_a_row;
    write_event(run, back.step,
                fmt::format("the job failed: {}; restart {} ({} of {} without a new checkpoint) goes on {}",
                            end.what, ++number, in_a_row, supervision.max_restarts, back.text()));
    if (checkpoint >= 0) resume = {"--resume"};
    const double pause = kFirstPause * std::exp2(static_cast<double>(std::min<int64_t>(in_a_row - 1, 10)));
    if (!job.pause(std::min(pause, kLongestPause))) return kExitInterrupted;
  }
}

}  // namespace moesaic
