#pragma once
// Kernels that read the memory of the other ranks of this machine through plain peer pointers.
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace moesaic {

inline constexpr int kMaxSources = 64;  // of one launch

/// to[recv_offsets[p] ..] = rows offsets[p][me] .. offsets[p][me + 1] of data[p], for each source p; rows past recv_rows are
/// left out. Offsets lie in device memory. A row is row_bytes long, a multiple of 2.
struct PullRows {
  std::byte* to;
  const int32_t* recv_offsets;
  const std::byte* data[kMaxSources];
  const int32_t* offsets[kMaxSources];
  int num_sources, me;
  int64_t recv_rows, row_bytes;
};
void pull_rows(cudaStream_t stream, const PullRows& pull);

/// out[i] = sum over p of parts[p][i], in order, FP32 inside (i32: exact). out may be one of the parts.
struct PullSum {
  void* out;
  const std::byte* parts[kMaxSources];
  int num_sources;
  int64_t count;
};
void pull_sum(cudaStream_t stream, const PullSum& pull, DType type);

}  // namespace moesaic
