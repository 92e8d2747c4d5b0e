#pragma once
// What the driver says of a GPU's memory, to hold against the memory table.
#include <cstdint>

namespace moesaic {

/// Bytes of the calling thread's GPU that are taken: by every process, contexts and libraries included. 0 in a build without CUDA.
int64_t gpu_memory_in_use();

}  // namespace moesaic
