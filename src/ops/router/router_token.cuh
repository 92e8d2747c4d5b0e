#pragma once
// A token of the router on the GPU: its experts lie over a group of 8, 16 or 32 lanes of a warp, a few in each.
#include "base/check.h"
#include "ops/cuda_op.cuh"

namespace moesaic::ops {

constexpr int kRouterThreads = 256;
// Shared memory of one block: 48 KiB are given without asking, and the kernel itself has a little.
constexpr int64_t kSharedBytes = 47 << 10;

/// Which expert is a lane's i-th: packs of kPack neighbours, lane by lane. Rises with i.
template <int kGroupLanes, int kLaneValues, int kPackSize>
struct Lanes {
  static constexpr int kLanes = kGroupLanes, kValues = kLaneValues, kPack = kPackSize;
  __device__ static int expert(int lane, int i) {
    return i / kPack * (kPack * kLanes) + lane * kPack + i % kPack;
  }
};

/// Calls f(Lanes<...>) with the layout for num_experts; packed: rows can be accessed as packs of 4.
template <bool kPacked, class F>
void with_values(int64_t num_experts, const F& f) {
  constexpr int kPack = kPacked ? 4 : 1;
  if (num_experts <= 32) return f(Lanes<8, 4, kPack>());
  if (num_experts <= 64) return f(Lanes<16, 4, kPack>());
  if (num_experts <= 128) return f(Lanes<32, 4, kPack>());
  if (num_experts <= 256) return f(Lanes<32, 8, kPack>());
  if (num_experts <= 512) return f(Lanes<32, 16, kPack>());
  return f(Lanes<32, 32, kPack>());
}
template <class F>
void with_lanes(int64_t num_experts, bool packed, const F& f) {
  packed ? with_values<true>(num_experts, f) : with_values<false>(num_experts, f);
}

/// Floats of shared memory that one token takes, so that the rows of neighbouring tokens begin in different banks.
inline int shared_stride(int64_t floats) {
  return static_cast<int>(round_up(floats, 32)) + 4;
}

/// A block's threads: kRouterThreads, fewer when the tokens' shared memory would not fit.
template <class L>
int num_router_threads(int stride) {
  int threads = kRouterThreads;
  while (threads > 32 && int64_t{threads} / L::kLanes * stride * 4 > kSharedBytes) threads /= 2;
  return threads;
}

/// values = the lane's part of a row of num_experts; `fill` where there is no such expert.
template <class L>
__device__ void load_row(const float* row, int lane, int num_experts, float fill,
                         float (&values)[L::kValues]) {
#pragma unroll
  for (int i = 0; i < L::kValues; i += L::kPack) {
    const int expert = L::expert(lane, i);
    Pack<float, L::kPack> pack;
#pragma unroll
    for (int j = 0; j < L::kPack; ++j) pack.values[j] = fill;
    if (expert < num_experts) pack = load_pack<float, L::kPack>(row + expert);
#pragma unroll
    for (int j = 0; j < L::kPack; ++j) values[i + j] = pack[j];
  }
}
template <class L>
__device__ void store_row(float* row, int lane, int num_experts, const float (&values)[L::kValues]) {
#pragma unroll
  for (int i = 0; i < L::kValues; i += L::kPack) {
    const int expert = L::expert(lane, i);
    float part[L::kPack];
#pragma unroll
    for (int j = 0; j < L::kPack; ++j) part[j] = values[i + j];
    if (expert < num_experts) store_pack<L::kPack>(row + expert, part);
  }
}

/// f over the lanes of a group, the same on each of them, always in the same order. The whole warp calls these.
template <class L, class T, class F>
__device__ T over_group(T x, const F& f) {
#pragma unroll
  for (int lane = L::kLanes / 2; lane > 0; lane /= 2) x = f(x, __shfl_xor_sync(0xffffffffu, x, lane));
  return x;
}
template <class L>
__device__ float group_sum(float x) {
  return over_group<L>(x, [](float a, float b) { return a + b; });
}
template <class L>
__device__ float group_max(float x) {
  return over_group<L>(x, [](float a, float b) { return fmaxf(a, b); });
}
template <class L>
__device__ uint32_t group_max(uint32_t x) {
  if constexpr (L::kLanes == 32)
    return __reduce_max_sync(0xffffffffu, x);
  else
    return over_group<L>(x, [](uint32_t a, uint32_t b) { return max(a, b); });
}
template <class L>
__device__ uint32_t group_min(uint32_t x) {
  if constexpr (L::kLanes == 32)
    return __reduce_min_sync(0xffffffffu, x);
  else
    return over_group<L>(x, [](uint32_t a, uint32_t b) { return min(a, b); });
}

/// A number above 0 that orders as x does: 0 is left for what cannot be chosen.
__device__ inline uint32_t ordered(float x) {
  const uint32_t bits = __float_as_uint(__fadd_rn(x, 0.0f));  // -0 becomes 0, its equal
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

/// y[i] = p[i] (d[i] - sum of p d): the gradient of a softmax p.
template <class L>
__device__ void softmax_gradient(const float (&p)[L::kValues], const float (&d)[L::kValues],
                                 float (&y)[L::kValues]) {
  float dot = 0;
#pragma unroll
  for (int i = 0; i < L::kValues; ++i) dot += p[i] * d[i];
  dot = group_sum<L>(dot);
#pragma unroll
  for (int i = 0; i < L::kValues; ++i) y[i] = p[i] * (d[i] - dot);
}

/// fast_exp of vector_math.h with the multiply-adds that the CPU's compiler makes of it: the same bits. Which expert is
/// chosen hangs on the last bit of a score, since rounding makes ties.
__device__ inline float cpu_exp(float x) {
  constexpr float kRound = 12582912;
  const float shifted = __fmaf_rn(x, 1.44269504f, kRound);
  const float k = __fadd_rn(shifted, -kRound);
  const float r = __fmaf_rn(k, 2.12194440e-4f, __fmaf_rn(-k, 0.693359375f, x));
  float p = __fmaf_rn(1.9875691500e-4f, r, 1.3981999507e-3f);
  p = __fmaf_rn(p, r, 8.3334519073e-3f);
  p = __fmaf_rn(p, r, 4.1665795894e-2f);
  p = __fmaf_rn(p, r, 1.6666665459e-1f);
  p = __fmaf_rn(p, r, 5.0000001201e-1f);
  p = __fadd_rn(__fmaf_rn(__fmul_rn(p, r), r, r), 1.0f);
  const uint32_t exponent = __float_as_uint(shifted) - __float_as_uint(kRound) + 126;
  const float y = __fmul_rn(__fadd_rn(p, p), __uint_as_float(exponent << 23));
  const float high = x > 88.72283f ? __uint_as_float(0x7f800000u) : y;
  return x < -86.9f ? 0.0f : high;
}
/// a / b; the CPU's threads flush denormals to zero.
__device__ inline float cpu_quotient(float a, float b) {
  const float quotient = __fdiv_rn(a, b);
  return fabsf(quotient) < 1.17549435e-38f ? 0.0f : quotient;
}
__device__ inline float cpu_sigmoid(float x) {
  return cpu_quotient(1.0f, __fadd_rn(1.0f, cpu_exp(-x)));
}

}  // namespace moesaic::ops
