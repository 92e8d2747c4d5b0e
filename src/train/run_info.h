#pragma once
// What run.json says of a run (report/run_info.h), gathered from all ranks.
#include "launch/launch.h"
#include "layers/layer_spec.h"
#include "report/run_info.h"

namespace moesaic {

/// What an arena holds now, by purpose, in the memory table's order.
MemoryByPurpose memory_by_purpose(const Arena& arena);

/// Called by every rank, which tells the others what its arena holds; the same result on each.
RunInfo gather_run_info(const Config& config, const LayerSpec& spec, Rank& rank);

}  // namespace moesaic
