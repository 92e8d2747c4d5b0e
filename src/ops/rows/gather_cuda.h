#pragma once
// Rows copied by index on the GPU, whatever they hold: gather_rows and embedding_forward.
#include <cuda_runtime.h>

#include <cstdint>

namespace moesaic::ops {

/// y[i] = x[map[i]], rows of row_bytes bytes, for i < *count (null: num_rows) and i < num_rows.
void gather_bytes(cudaStream_t stream, const void* x, const int32_t* map, const int32_t* count, void* y,
                  int64_t num_rows, int64_t row_bytes);

}  // namespace moesaic::ops
