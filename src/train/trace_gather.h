#pragma once
// The timeline of a step from all ranks.
#include <vector>

#include "launch/launch.h"
#include "report/trace.h"

namespace moesaic {

/// From now on each op of this rank is appended to `events`, until rank.device->set_trace({}).
void record_trace(Rank& rank, std::vector<TraceEvent>& events);
/// Everybody's events on rank 0's clock (equal for threads of one process); on other ranks the same.
std::vector<TraceEvent> gather_trace(Rank& rank, const std::vector<TraceEvent>& events);

}  // namespace moesaic
