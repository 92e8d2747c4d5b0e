#include "ops/bias/bias_bodies.h"
#include "ops/rows/words.cuh"

namespace moesaic::ops {
namespace {

constexpr int kThreads = 128, kDepth = 4;  // kDepth rows of a thread are in flight

/// A thread keeps the bias of N columns and walks every gridDim.y-th row.
template <int N, class T, class B>
__global__ void __launch_bounds__(kThreads)
    add_bias_kernel(T* x, const B* bias, int64_t num_rows, int64_t width) {
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * N;
  if (column >= width) return;
  const auto add = load_words<N>(bias + column);
  const int64_t stride = gridDim.y;
  for (int64_t first = blockIdx.y; first < num_rows; first += stride * kDepth) {
    Words<T, N> rows[kDepth];
#pragma unroll
    for (int d = 0; d < kDepth; ++d)
      if (first + d * stride < num_rows) rows[d] = load_words<N>(x + (first + d * stride) * width + column);
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
      if (first + d * stride >= num_rows) continue;
      float sum[N];
#pragma unroll
      for (int i = 0; i < N; ++i) sum[i] = rows[d][i] + add[i];
      store_words(x + (first + d * stride) * width + column, sum);
    }
  }
}

template <int N, class T, class B>
void launch(cudaStream_t stream, T* x, const B* bias, int64_t num_rows, int64_t width) {
  constexpr int64_t kBlocks = 132 * 16;
  const int64_t across = ceil_div(width, kThreads * N);
  const int64_t down = std::clamp<int64_t>(kBlocks / across, 1, ceil_div(num_rows, kDepth));
  add_bias_kernel<N>
      <<<dim3(static_cast<unsigned>(across), static_cast<unsigned>(down)), kThreads, 0, stream>>>(
          x, bias, num_rows, width);
}

}  // namespace

void add_bias_cuda(const OpContext& c, const AddBias& args) {
  const int64_t num_rows = c.shape(args.x).rows(), width = c.shape(args.x)[-1];
  if (num_rows == 0) return;
  with_float(c.dtype(args.x), [&](auto x_zero) {
    with_float(c.dtype(args.bias), [&](auto b_zero) {
      auto* x = cuda_pointer(c.inout<decltype(x_zero)>(args.x));
      const auto* bias = cuda_pointer(c.in<decltype(b_zero)>(args.bias));
      constexpr int N = 16 / std::max(sizeof *x, sizeof *bias);
      if (packs(x, width, N, sizeof *x) && packs(bias, width, N, sizeof *bias))
        launch<N>(cuda_stream(c), x, bias, num_rows, width);
      else
        launch<1>(cuda_stream(c), x, bias, num_rows, width);
    });
  });
}

}  // namespace moesaic::ops
