#include "ops/norm/norm_bodies.h"
#include "ops/rows/words.cuh"

namespace moesaic::ops {
namespace {

constexpr int kThreads = 256, N = 4, kDepth = 4;  // kDepth packs of N elements of a thread are in flight

/// Squares are added up in FP32 over a few neighbouring packs, those sums in FP64.
struct SumOfSquares {
  using Sum = double;
  using Part = float;
  using Out = float;
  static __device__ Part of(float x) { return x * x; }
};
struct CountNonfinite {
  using Sum = unsigned long long;
  using Part = int;
  using Out = int32_t;
  static __device__ Part of(float x) { return (__float_as_uint(x) & 0x7f800000u) == 0x7f800000u; }
};

/// The sum over the block, in a fixed order; right on thread 0 only. Every thread calls it, once in a kernel.
template <class Sum>
__device__ Sum sum_of_block(Sum sum) {
  __shared__ Sum sums[kThreads / 32];
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lane);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
  __syncthreads();
  Sum total = 0;
#pragma unroll
  for (int w = 0; w < kThreads / 32; ++w) total += sums[w];
  return total;
}

/// parts[block]: the first num_packs packs of N, then the elements behind them.
template <class Op>
__global__ void __launch_bounds__(kThreads)
    parts_kernel(const float* x, int64_t count, int64_t num_packs, typename Op::Sum* parts) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  typename Op::Sum sum = 0;
  for (int64_t i = first; i < num_packs; i += stride * kDepth) {
    Words<float, N> packs[kDepth];
#pragma unroll
    for (int d = 0; d < kDepth; ++d)
      if (i + d * stride < num_packs) packs[d] = load_words<N>(x + (i + d * stride) * N);
    typename Op::Part part = 0;
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
      if (i + d * stride >= num_packs) continue;
#pragma unroll
      for (int k = 0; k < N; ++k) part += Op::of(packs[d][k]);
    }
    sum += part;
  }
  for (int64_t i = num_packs * N + first; i < count; i += stride) sum += Op::of(x[i]);
  sum = sum_of_block(sum);
  if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

template <class Op>
__global__ void __launch_bounds__(kThreads)
    total_kernel(const typename Op::Sum* parts, int num_parts, typename Op::Out* out) {
  typename Op::Sum sum = 0;
  for (int i = threadIdx.x; i < num_parts; i += kThreads) sum += parts[i];
  sum = sum_of_block(sum);
  if (threadIdx.x == 0) *out = static_cast<typename Op::Out>(sum);
}

template <class Op>
void reduce(const OpContext& c, const Reduction& args) {
  static_assert(sizeof(typename Op::Sum) == kReductionPartBytes);
  const float* x = c.in<float>(args.x);
  auto* parts = reinterpret_cast<typename Op::Sum*>(c.out<uint8_t>(args.scratch));
  const int64_t count = c.shape(args.x).numel(), blocks = reduction_blocks(count);
  parts_kernel<Op><<<static_cast<unsigned>(blocks), kThreads, 0, cuda_stream(c)>>>(
      x, count, packs(x, N, N, sizeof *x) ? count / N : 0, parts);
  total_kernel<Op><<<1, kThreads, 0, cuda_stream(c)>>>(parts, static_cast<int>(blocks),
                                                       c.out<typename Op::Out>(args.out));
}

}  // namespace

void sum_of_squares_cuda(const OpContext& c, const Reduction& args) {
  reduce<SumOfSquares>(c, args);
}

void count_nonfinite_cuda(const OpContext& c, const Reduction& args) {
  reduce<CountNonfinite>(c, args);
}

}  // namespace moesaic::ops
