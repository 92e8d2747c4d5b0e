#pragma once
// The figures that are not line charts. Each gives its HTML; what only the script can draw (since one of many is shown at a
// time) is appended to `data`, an array.
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "report/page/run_data.h"

namespace moesaic {

/// Expert load as a heat map over steps: all layers at once (the busiest expert of each), or the experts of one layer.
/// `max_cells` bounds what goes into the page: beyond it columns are joined, then layers left out evenly. Runs without loads
/// are passed over; "" when no run has any.
std::string load_figure(const std::vector<RunData>& runs, size_t max_cells, nlohmann::ordered_json& data);

/// The spans of a traced step by stream, one rank at a time, and how busy each stream was. "" when no run has a trace.
std::string timeline_figure(std::vector<RunData>& runs, size_t max_spans, nlohmann::ordered_json& data);

/// A bar per rank of one run, stacked by purpose. Of more than kMaxBars ranks, those that use most. "" when unknown.
inline constexpr size_t kMaxBars = 16;
std::string memory_figure(const RunData& run, bool name_run);

}  // namespace moesaic
