#pragma once
// The newest step as Prometheus metrics, in a file that node_exporter's textfile collector (or anything else that
// reads the format) picks up: no port to open, nothing to poll. Format: the text exposition format 0.0.4 of Prometheus
// ("# HELP", "# TYPE", samples; no timestamps, which that collector refuses). Names: docs/report.md.
#include <cstdint>
#include <optional>
#include <string>

#include "report/metrics.h"

namespace moesaic {

/// What adds up over the steps of one process.
struct PrometheusTotals {
  int64_t skipped_steps = 0;
  int64_t dropped_rows = 0;
  int64_t tokens = 0;              // counted ones
  std::optional<double> val_loss;  // of the newest evaluation
};

/// All samples of one step, each labelled run="<name>". NaN and infinity as the format spells them. `unix_seconds` is
/// the wall clock.
std::string prometheus_text(const StepMetrics& metrics, const PrometheusTotals& totals,
                            const std::string& run, double unix_seconds);

/// A label's value as it stands between quotes: backslash, quote and newline escaped.
std::string prometheus_label(const std::string& value);

class PrometheusFile {
 public:
  /// `path` ends in ".prom" where node_exporter shall see it; its folder must exist and be writable, else IoError.
  /// Nothing appears there before the first step.
  PrometheusFile(std::string path, std::string run);

  /// Replaces the file: readers see the old step or the new one, never a part. Not brought to the disk, so that a step
  /// does not wait for it. Throws IoError.
  void write(const StepMetrics& metrics);

 private:
  std::string path_, run_;
  PrometheusTotals totals_;
};

}  // namespace moesaic
