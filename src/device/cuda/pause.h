#pragma once
// A pause on a stream, for the delay mode: with random pauses between ops, an ordering that only luck upholds breaks.
#include <cuda_runtime_api.h>

#include <cstdint>

namespace moesaic {

/// Keeps `stream` busy for this long.
void pause(cudaStream_t stream, uint64_t nanoseconds);

}  // namespace moesaic
