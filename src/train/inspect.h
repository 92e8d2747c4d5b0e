#pragma once
// What a run will be, without running it: texts for `moesaic inspect`, made on the null device by the run's own code.
#include <string>

#include "config/config.h"

namespace moesaic {

/// Parameters (total, active), FLOPs per token, the tables of parameters and of one layer's activations.
std::string inspect_model(const Config& config);
/// Bytes of each rank, by purpose; the ranks that hold the most and the least.
std::string inspect_memory(const Config& config);
/// Every program of rank 0 with streams, waits and bytes; `only`: those whose name holds it.
std::string inspect_program(const Config& config, const std::string& only);

}  // namespace moesaic
