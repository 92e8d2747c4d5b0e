#pragma once
// One rank per process: this process is one of a job that a launcher started.
#include <functional>
#include <string>

#include "launch/launch.h"
#include "launch/rank_variables.h"

namespace moesaic {

/// Joins the job at rank 0, runs `work` as rank place.rank, and waits for the others. Failures: see run_ranks.
void run_process_rank(const RunConfig& run, const RankVariables& place, int64_t world_size,
                      const std::function<void(Rank&)>& work, const std::string& identity);

}  // namespace moesaic
