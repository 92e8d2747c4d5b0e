#pragma once
// `moesaic report`: runs as one self-contained HTML page. Everything is in the file (style, script, numbers), nothing is
// fetched, and text from runs is inert. What each part shows: docs/report.md.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "report/page/run_data.h"

namespace moesaic {

enum class PageX { step, tokens, time };  // what lines are drawn over: steps, tokens seen, time of training

struct PageOptions {
  PageX x = PageX::step;
};

/// The page of at least one run, at most kMaxRuns. Names are made distinct; traces are thinned out. Below two megabytes a run
/// however long the runs are.
inline constexpr size_t kMaxRuns = 20;
std::string report_page(std::vector<RunData> runs, const PageOptions& options);

/// Reads the folders and writes the page to `path`, whole or not at all. Throws IoError; ConfigError for too many runs.
void write_report(const std::vector<std::string>& folders, std::optional<int64_t> trace_step,
                  const PageOptions& options, const std::string& path);

}  // namespace moesaic
