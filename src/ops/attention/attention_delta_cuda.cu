#include "ops/attention/attention_kernels.h"
#include "ops/cuda_op.cuh"

namespace moesaic::ops::attention {
namespace {

constexpr int kThreads = 256;
constexpr int kLanes =
    8;  // of a head's row: with packs of 16 bytes a head of width 64 in BF16 is one access of each

/// A row: one head of one position.
template <class T, int kPack>
__global__ void __launch_bounds__(kThreads)
    delta_kernel(int64_t rows, int64_t S, int H, int A, const T* o, const T* d_o, float* delta) {
  const int lane = threadIdx.x % kLanes;
  const int64_t step = static_cast<int64_t>(gridDim.x) * (kThreads / kLanes);
  // All lanes of a warp go round equally often, for the sums over lanes.
  const int64_t warp_first = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x / 32 * 32) / kLanes;
  for (int64_t at = warp_first; at < rows; at += step) {
    const int64_t row = at + threadIdx.x % 32 / kLanes;
    float sum = 0;
    if (row < rows)
      for (int a = lane * kPack; a < A; a += kLanes * kPack) {
        const auto x = load_pack<T, kPack>(o + row * A + a), y = load_pack<T, kPack>(d_o + row * A + a);
#pragma unroll
        for (int k = 0; k < kPack; ++k) sum = fmaf(x[k], y[k], sum);
      }
#pragma unroll
    for (int other = kLanes / 2; other > 0; other /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, other);
    if (row < rows && lane == 0) {
      const int64_t position = row / H, h = row % H, b = position / S, s = position % S;
      delta[(b * H + h) * S + s] = sum;
    }
  }
}

}  // namespace

template <class T>
void make_delta(const Problem& p, const BackwardTensors<T>& t) {
  constexpr int kPack = 16 / sizeof(T);
  const int64_t rows = p.B * p.S * p.H;
  const unsigned blocks = num_blocks(ceil_div(rows, kThreads / kLanes));
  if (packs(t.o, p.A, kPack, sizeof(T)) && packs(t.d_o, p.A, kPack, sizeof(T)))
    delta_kernel<T, kPack><<<blocks, kThreads, 0, p.stream>>>(rows, p.S, p.H, p.A, t.o, t.d_o, t.delta);
  else
    delta_kernel<T, 1><<<blocks, kThreads, 0, p.stream>>>(rows, p.S, p.H, p.A, t.o, t.d_o, t.delta);
}

template void make_delta(const Problem&, const BackwardTensors<float>&);
template void make_delta(const Problem&, const BackwardTensors<__nv_bfloat16>&);

}  // namespace moesaic::ops::attention
