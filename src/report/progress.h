#pragma once
// The line that a person watches. On a terminal one line is redrawn in place; elsewhere (a file, a pipe, a
// job's log) plain lines are written now and then. Only rank 0 has one; not thread-safe.
#include <cstdint>
#include <cstdio>
#include <string>

#include "report/metrics.h"

namespace moesaic {

/// How far the run is. The trainer fills it, since it knows whether steps or seconds end the run.
struct RunPosition {
  int64_t num_steps = 0;    // of the whole run; 0 when time ends it
  double fraction = 0;      // of the run that is done, 0 to 1
  double eta_seconds = -1;  // negative: not known yet
};

/// Seconds left at the pace so far: `seconds` took the run from `fraction_at_start` (above 0 when resumed) to
/// `fraction`. Negative while nothing was done yet.
double estimate_remaining(double seconds, double fraction_at_start, double fraction);

/// "step 120/1000  loss 2.1034  12.3k tokens/s  grad 0.83  balance 1.42  eta 45.0 s". The step counts from 1
/// here.
std::string progress_text(const StepMetrics& metrics, const RunPosition& position);
/// The text behind a bar, in at most `columns` columns; the bar gives way first.
std::string progress_line(const StepMetrics& metrics, const RunPosition& position, int columns);

/// Width of the terminal behind `out`; 0 when it is not a terminal.
int terminal_columns(std::FILE* out);

class ProgressWriter {
 public:
  /// Borrows `out`, which stays open while this lives. `columns` as from terminal_columns. Without a terminal
  /// every `plain_every`-th step writes a line, and so do the first step, the last one, skipped ones and
  /// those that evaluate.
  ProgressWriter(std::FILE* out, int columns, int64_t plain_every);
  ~ProgressWriter() { finish(); }
  ProgressWriter(const ProgressWriter&) = delete;
  ProgressWriter& operator=(const ProgressWriter&) = delete;

  void update(const StepMetrics& metrics, const RunPosition& position);
  /// Erases the drawn line, so that other output may follow; the next update draws it again.
  void clear();
  /// Leaves the drawn line in place and moves to the next.
  void finish();

 private:
  std::FILE* out_;
  int columns_;
  int64_t plain_every_;
  bool first_ = true;
  bool drawn_ = false;
};

}  // namespace moesaic
