#pragma once
// Sums inside a block and over the partial sums of blocks, for norms and their gains' gradients.
#include "ops/rows/words.cuh"

namespace moesaic::ops {

/// K sums over a block of kThreads threads at once, the same on every thread. Every thread calls it.
template <int kThreads, int K>
__device__ void block_sums(float (&x)[K]) {
  constexpr int kWarps = kThreads / 32;
  __shared__ float sums[K][kWarps];
#pragma unroll
  for (int k = 0; k < K; ++k) x[k] = warp_sum(x[k]);
  __syncthreads();  // the sums of an earlier call have been read
  if (threadIdx.x % 32 == 0)
#pragma unroll
    for (int k = 0; k < K; ++k) sums[k][threadIdx.x / 32] = x[k];
  __syncthreads();
#pragma unroll
  for (int k = 0; k < K; ++k) x[k] = warp_sum(threadIdx.x % 32 < kWarps ? sums[k][threadIdx.x % 32] : 0);
}

/// Where the sums of columns [0, split) and [split, ...) are added.
struct ColumnSums {
  float *first, *second;
  int64_t split;
};

/// Adds the column sums of partials [num_rows, width]: a warp sums every 32nd row of 32 columns, and the first warp adds the
/// warps' sums in order. Launched by add_column_sums.
static __global__ void __launch_bounds__(1024)
    column_sums_kernel(const float* partials, int64_t num_rows, int64_t width, ColumnSums to) {
  __shared__ float sums[32][32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * 32 + lane;
  float sum = 0;
  if (column < width)
#pragma unroll 4
    for (int64_t row = warp; row < num_rows; row += 32) sum += partials[row * width + column];
  sums[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || column >= width) return;
  float total = 0;
#pragma unroll
  for (int w = 0; w < 32; ++w) total += sums[w][lane];
  float* at = column < to.split ? to.first + column : to.second + (column - to.split);
  *at += total;
}

inline void add_column_sums(cudaStream_t stream, const float* partials, int64_t num_rows, int64_t width,
                            ColumnSums to) {
  column_sums_kernel<<<static_cast<unsigned>(ceil_div(width, 32)), 1024, 0, stream>>>(partials, num_rows,
                                                                                      width, to);
}

}  // namespace moesaic::ops
