#pragma once
// What every schedule must hold, proved by walking its lists without running anything.
#include <cstdint>
#include <string>
#include <vector>

#include "schedule/schedule.h"

namespace moesaic {

struct ScheduleReport {
  std::vector<std::string>
      problems;  // each a sentence naming rank and action; empty when the schedule is sound
  std::vector<int64_t>
      max_in_flight;  // per rank: most (chunk, micro-batch) pairs whose activations are kept at once
};

/// Checks that
/// - one rank owns each chunk, and runs each (chunk, micro-batch) forward once and backward once (whole, or
/// input half then
///   weight half), forward first, with its input and its output's gradient there before;
/// - each send has its receive, at the right peer, and both ends agree on the order;
/// - the lists, walked together, reach their ends: no ranks wait for each other for ever;
/// - each chunk is reduced once, after all its backwards; each rank steps once, after all its reduces; each
/// chunk is
///   gathered once, after the step.
ScheduleReport check_schedule(const Schedule& schedule);

}  // namespace moesaic
