#pragma once
// What the CUDA bodies of ops share. Conventions:
//   - a body enqueues on cuda_stream(c) and returns; it neither allocates nor waits, and never looks at device data;
//   - kernels index with 64 bits; reductions are FP32 in a fixed order (no atomics on floats), so repeats are bit-equal;
//   - rows are walked by a grid that does not depend on device data, and stop at the count that lies on the device;
//   - working memory comes as a scratch handle (op.h), never from the heap.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "device/op_context.h"
#include "ops/optional.h"

namespace moesaic::ops {

inline cudaStream_t cuda_stream(const OpContext& c) {
  return static_cast<cudaStream_t>(c.stream());
}

/// The last element of a `count_of` or `offsets` tensor, where the number of rows lies; null when absent.
inline const int32_t* count_pointer(const OpContext& c, Handle count_of) {
  return count_of ? c.in<int32_t>(count_of) + c.shape(count_of).numel() - 1 : nullptr;
}
__device__ inline int64_t num_rows(const int32_t* count, int64_t all) {
  return count == nullptr ? all : min(static_cast<int64_t>(*count), all);
}

/// Host element types and what they are in kernels: with_float(type, [&](auto zero) { using T = CudaType<decltype(zero)>; }).
template <class T>
struct CudaTypeOf {
  using type = T;
};
template <>
struct CudaTypeOf<bf16> {
  using type = __nv_bfloat16;
};
template <class T>
using CudaType = typename CudaTypeOf<T>::type;

template <class T>
const CudaType<T>* cuda_pointer(const T* p) {
  return reinterpret_cast<const CudaType<T>*>(p);
}
template <class T>
CudaType<T>* cuda_pointer(T* p) {
  return reinterpret_cast<CudaType<T>*>(p);
}

__device__ inline float to_float(float x) {
  return x;
}
__device__ inline float to_float(__nv_bfloat16 x) {
  return __bfloat162float(x);
}
template <class T>
__device__ T from_float(float x);
template <>
__device__ inline float from_float<float>(float x) {
  return x;
}
template <>
__device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

/// N neighbouring elements, loaded and stored in one access (16 bytes at most); the address must be aligned to its size.
template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  static_assert(sizeof(T) * N <= 16);
  T values[N];
  __device__ float operator[](int i) const { return to_float(values[i]); }
};
template <class T, int N>
__device__ Pack<T, N> load_pack(const T* p) {
  return *reinterpret_cast<const Pack<T, N>*>(p);
}
template <int N, class T>
__device__ void store_pack(T* p, const float (&values)[N]) {
  Pack<T, N> pack;
#pragma unroll
  for (int i = 0; i < N; ++i) pack.values[i] = from_float<T>(values[i]);
  *reinterpret_cast<Pack<T, N>*>(p) = pack;
}
/// Whether rows of `width` elements of `bytes` bytes at p can be accessed as packs of n.
inline bool packs(const void* p, int64_t width, int64_t n, int64_t bytes) {
  return width % n == 0 && reinterpret_cast<uintptr_t>(p) % static_cast<uintptr_t>(n * bytes) == 0;
}

/// Sum over the 32 lanes of a warp, the same on every lane, always in the same order.
__device__ inline float warp_sum(float x) {
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) x += __shfl_xor_sync(0xffffffffu, x, lane);
  return x;
}
__device__ inline float warp_max(float x) {
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, lane));
  return x;
}
/// Sum over a block of kThreads threads, the same on every thread. Every thread calls it.
template <int kThreads>
__device__ float block_sum(float x) {
  constexpr int kWarps = kThreads / 32;
  __shared__ float sums[kWarps];
  x = warp_sum(x);
  __syncthreads();  // the sums of an earlier call have been read
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = x;
  __syncthreads();
  float total = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) total += sums[w];
  return total;
}

/// Blocks for `count` pieces of work of one block each, bounded so that a grid-stride loop takes the rest. A GPU holds a few
/// blocks on each of its 132 multiprocessors at a time.
inline unsigned num_blocks(int64_t count, int64_t most = 132 * 16) {
  return static_cast<unsigned>(std::max<int64_t>(1, std::min(count, most)));
}

}  // namespace moesaic::ops
