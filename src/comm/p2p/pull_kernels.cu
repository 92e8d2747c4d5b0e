#include <cuda_bf16.h>

#include <algorithm>

#include "comm/p2p/pull_kernels.h"

namespace moesaic {
namespace {

constexpr int kThreads = 512;
/// Enough to fill a link (16 multiprocessors do), few enough to leave the others to the ops beside it.
constexpr int kBlocks = 32;
constexpr int kLoads = 4;  // a thread's loads in flight: a peer answers late

template <class Word>
__global__ void __launch_bounds__(kThreads) rows_kernel(const __grid_constant__ PullRows pull) {
  const int64_t words = pull.row_bytes / static_cast<int64_t>(sizeof(Word));
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int p = 0; p < pull.num_sources; ++p) {
    const int64_t first = pull.offsets[p][pull.me], at = pull.recv_offsets[p];
    const int64_t rows =
        min(min(pull.offsets[p][pull.me + 1] - first, pull.recv_offsets[p + 1] - at), pull.recv_rows - at);
    const Word* from = reinterpret_cast<const Word*>(pull.data[p]) + first * words;
    Word* to = reinterpret_cast<Word*>(pull.to) + at * words;
    const int64_t count = rows * words;
    int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    for (; i + (kLoads - 1) * stride < count; i += kLoads * stride) {
      Word values[kLoads];
#pragma unroll
      for (int u = 0; u < kLoads; ++u) values[u] = from[i + u * stride];
#pragma unroll
      for (int u = 0; u < kLoads; ++u) to[i + u * stride] = values[u];
    }
    for (; i < count; i += stride) to[i] = from[i];
  }
}

template <class Word>
void launch_rows(cudaStream_t stream, const PullRows& pull) {
  rows_kernel<Word><<<kBlocks, kThreads, 0, stream>>>(pull);
}

__device__ float widen(float x) {
  return x;
}
__device__ float widen(__nv_bfloat16 x) {
  return __bfloat162float(x);
}
__device__ int32_t widen(int32_t x) {
  return x;
}
__device__ void narrow(float x, float& y) {
  y = x;
}
__device__ void narrow(float x, __nv_bfloat16& y) {
  y = __float2bfloat16_rn(x);
}
__device__ void narrow(int32_t x, int32_t& y) {
  y = x;
}

template <class T>
struct alignas(16) Pack {
  static constexpr int kCount = 16 / sizeof(T);
  T values[kCount];
};

/// The sums of packs i, i + kThreads, ... of which the last may lie beyond num_packs (kAll: none does).
template <bool kAll, class T>
__device__ void sum_packs(const PullSum& pull, int64_t i, int64_t num_packs) {
  using Sum = decltype(widen(T()));
  constexpr int kCount = Pack<T>::kCount;
  Sum sum[kLoads][kCount];
  for (int p = 0; p < pull.num_sources; ++p) {
    const Pack<T>* from = reinterpret_cast<const Pack<T>*>(pull.parts[p]) + i;
    Pack<T> part[kLoads];
#pragma unroll
    for (int u = 0; u < kLoads; ++u)
      if (kAll || i + u * kThreads < num_packs) part[u] = from[u * kThreads];
#pragma unroll
    for (int u = 0; u < kLoads; ++u)
#pragma unroll
      for (int k = 0; k < kCount; ++k)
        sum[u][k] = p == 0 ? widen(part[u].values[k]) : sum[u][k] + widen(part[u].values[k]);
  }
#pragma unroll
  for (int u = 0; u < kLoads; ++u) {
    Pack<T> result;
#pragma unroll
    for (int k = 0; k < kCount; ++k) narrow(sum[u][k], result.values[k]);
    if (kAll || i + u * kThreads < num_packs)
      (reinterpret_cast<Pack<T>*>(pull.out) + i)[u * kThreads] = result;
  }
}

/// The first num_packs packs 16 bytes at a time, the rest one by one.
template <class T>
__global__ void __launch_bounds__(kThreads)
    sum_kernel(const __grid_constant__ PullSum pull, int64_t num_packs) {
  using Sum = decltype(widen(T()));
  constexpr int64_t kPiece = kThreads * kLoads;
  for (int64_t begin = blockIdx.x * kPiece; begin < num_packs; begin += gridDim.x * kPiece)
    if (begin + kPiece <= num_packs)
      sum_packs<true, T>(pull, begin + threadIdx.x, num_packs);
    else
      sum_packs<false, T>(pull, begin + threadIdx.x, num_packs);
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = num_packs * Pack<T>::kCount + first; i < pull.count; i += stride) {
    Sum sum = {};
    for (int p = 0; p < pull.num_sources; ++p) {
      const Sum part = widen(reinterpret_cast<const T*>(pull.parts[p])[i]);
      sum = p == 0 ? part : sum + part;
    }
    narrow(sum, reinterpret_cast<T*>(pull.out)[i]);
  }
}

template <class T>
void launch_sum(cudaStream_t stream, const PullSum& pull) {
  bool aligned = reinterpret_cast<uintptr_t>(pull.out) % 16 == 0;
  for (int p = 0; p < pull.num_sources; ++p)
    aligned = aligned && reinterpret_cast<uintptr_t>(pull.parts[p]) % 16 == 0;
  const int64_t packs = aligned ? pull.count / Pack<T>::kCount : 0;
  const int64_t blocks = std::clamp<int64_t>((pull.count + kThreads * 4 - 1) / (kThreads * 4), 1, kBlocks);
  sum_kernel<T><<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(pull, packs);
}

}  // namespace

void pull_rows(cudaStream_t stream, const PullRows& pull) {
  auto together = static_cast<uintptr_t>(pull.row_bytes) | reinterpret_cast<uintptr_t>(pull.to);
  for (int p = 0; p < pull.num_sources; ++p) together |= reinterpret_cast<uintptr_t>(pull.data[p]);
  if (together % 16 == 0)
    launch_rows<uint4>(stream, pull);
  else if (together % 4 == 0)
    launch_rows<uint32_t>(stream, pull);
  else
    launch_rows<uint16_t>(stream, pull);
}

void pull_sum(cudaStream_t stream, const PullSum& pull, DType type) {
  switch (type) {
    case DType::bf16:
      return launch_sum<__nv_bfloat16>(stream, pull);
    case DType::i32:
      return launch_sum<int32_t>(stream, pull);
    default:
      return launch_sum<float>(stream, pull);
  }
}

}  // namespace moesaic
