#pragma once
// Starting the ranks of a job as processes of this machine, without a launcher.
#include <signal.h>

#include <cstdint>
#include <string>
#include <vector>

namespace moesaic {

/// How a job of this machine ended.
struct JobEnd {
  int code = 0;      // 0, or the exit code of the process that failed first (128 + the signal that killed it)
  std::string what;  // about that process: "rank 2 was ended by signal 9 (Killed)"; empty when none failed
  bool failed =
      false;  // ranks died, hung or lost each other (exit_code.h), and none refused: it may be started again
  bool stopped = false;  // a signal to this process asked for the end
};

/// While one lives, this process has its signals wait for run() and pause(). Requires: this process has one thread.
class LocalJob {
 public:
  /// `ranks`: processes of one rank each, which find each other by torchrun's variables; 0: one process, whose ranks are
  /// threads. `control_port`: where rank 0 listens, or 0 for any free port.
  LocalJob(int64_t ranks, int64_t control_port);
  ~LocalJob();
  LocalJob(const LocalJob&) = delete;
  LocalJob& operator=(const LocalJob&) = delete;

  /// Starts copies of this program with `arguments` (without the program's name) and waits for them; none is left when it
  /// returns. Ctrl-C and SIGTERM are passed on to rank 0, which all ranks follow; a second one ends all at once (code 130).
  /// When a process fails, the others have some seconds to end by themselves. When this process dies, so do they.
  /// Throws IoError when a process cannot be started.
  JobEnd run(const std::vector<std::string>& arguments);
  /// Waits; false when a signal asked for the end.
  bool pause(double seconds);

 private:
  int64_t ranks_, control_port_;
  sigset_t watched_, before_;
};

/// One run of a LocalJob; returns its code.
int run_processes(int64_t count, int64_t control_port, const std::vector<std::string>& arguments);

}  // namespace moesaic
