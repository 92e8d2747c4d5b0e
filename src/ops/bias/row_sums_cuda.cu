#include "ops/bias/bias_bodies.h"
#include "ops/bias/row_sums_cuda.h"
#include "ops/rmsnorm/block_sums.cuh"

namespace moesaic::ops {
namespace {

constexpr int kLanes = 32, kWarps = 8;  // packs of neighbouring columns; rows at a time

/// partials [gridDim.y, width]: the columns of a block lie beside each other, its warps take every kWarps-th of its rows, and
/// blocks of the same columns share the rows.
template <int N, class T>
__global__ void __launch_bounds__(kLanes* kWarps)
    partial_sums_kernel(const T* x, int64_t num_rows, int64_t width, float* partials) {
  __shared__ float sums[kWarps][kLanes * N];
  const int lane = static_cast<int>(threadIdx.x) % kLanes, warp = static_cast<int>(threadIdx.x) / kLanes;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kLanes * N, column = first + lane * N;
  float sum[N] = {};
  if (column < width)
#pragma unroll 4
    for (int64_t row = static_cast<int64_t>(blockIdx.y) * kWarps + warp; row < num_rows;
         row += static_cast<int64_t>(gridDim.y) * kWarps) {
      const auto words = load_words<N>(x + row * width + column);
#pragma unroll
      for (int i = 0; i < N; ++i) sum[i] += words[i];
    }
#pragma unroll
  for (int i = 0; i < N; ++i) sums[warp][lane * N + i] = sum[i];
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kLanes * N && first + i < width; i += kLanes * kWarps) {
    float total = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) total += sums[w][i];
    partials[static_cast<int64_t>(blockIdx.y) * width + first + i] = total;
  }
}

template <int N, class T>
void launch(cudaStream_t stream, const T* x, int64_t num_rows, int64_t width, float* partials) {
  const dim3 blocks(static_cast<unsigned>(ceil_div(width, kLanes * N)),
                    static_cast<unsigned>(row_sums_blocks(num_rows, width)));
  partial_sums_kernel<N><<<blocks, kLanes * kWarps, 0, stream>>>(x, num_rows, width, partials);
}

}  // namespace

void row_sums_cuda(const OpContext& c, DType type, const void* x, int64_t num_rows, int64_t width,
                   std::byte* scratch, float* sums) {
  if (num_rows == 0) return;
  auto* partials = reinterpret_cast<float*>(scratch);
  with_float(type, [&](auto zero) {
    using T = CudaType<decltype(zero)>;
    constexpr int N = 16 / sizeof(T);
    const auto* rows = static_cast<const T*>(x);
    if (packs(rows, width, N, sizeof(T)))
      launch<N>(cuda_stream(c), rows, num_rows, width, partials);
    else
      launch<1>(cuda_stream(c), rows, num_rows, width, partials);
  });
  add_column_sums(cuda_stream(c), partials, row_sums_blocks(num_rows, width), width, {sums, nullptr, width});
}

void bias_backward_cuda(const OpContext& c, const BiasBackward& args) {
  const Shape& shape = c.shape(args.dy);
  row_sums_cuda(c, c.dtype(args.dy), c.in_bytes(args.dy), shape.rows(), shape[-1],
                args.scratch ? c.out_bytes(args.scratch) : nullptr, c.inout<float>(args.d_bias));
}

}  // namespace moesaic::ops
