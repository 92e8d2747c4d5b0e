#pragma once
// Neighbouring elements in registers as they lie in memory. A Pack of BF16 (cuda_op.cuh) is taken apart when it is loaded and
// fills a register with each element; Words keeps two of them in one until they are used, so that more loads are in flight.
#include <type_traits>

#include "ops/cuda_op.cuh"

namespace moesaic::ops {

/// N elements, moved in one access (16 bytes at most).
template <class T, int N>
struct alignas(sizeof(T) * N) Words {
  static_assert(sizeof(T) * N <= 16);
  using Word = std::conditional_t<sizeof(T) * N % 4 == 0, uint32_t, uint16_t>;
  Word words[sizeof(T) * N / sizeof(Word)];

  __device__ float operator[](int i) const {
    if constexpr (sizeof(T) == 4)
      return __uint_as_float(words[i]);
    else if constexpr (N == 1)
      return __uint_as_float(static_cast<uint32_t>(words[0]) << 16);
    else
      return __uint_as_float(i % 2 == 0 ? words[i / 2] << 16 : words[i / 2] & 0xffff0000u);
  }
};

/// The address must be aligned to the access (cuda_op.cuh: packs).
template <int N, class T>
__device__ Words<T, N> load_words(const T* p) {
  return *reinterpret_cast<const Words<T, N>*>(p);
}
template <int N, class T>
__device__ void store_words(T* p, const Words<T, N>& words) {
  *reinterpret_cast<Words<T, N>*>(p) = words;
}
/// Rounds to nearest even.
template <int N, class T>
__device__ void store_words(T* p, const float (&values)[N]) {
  Words<T, N> words;
  if constexpr (sizeof(T) == 4) {
#pragma unroll
    for (int i = 0; i < N; ++i) words.words[i] = __float_as_uint(values[i]);
  } else if constexpr (N == 1) {
    words.words[0] = __bfloat16_as_ushort(__float2bfloat16_rn(values[0]));
  } else {
#pragma unroll
    for (int i = 0; i < N; i += 2) {
      const __nv_bfloat162 pair = __floats2bfloat162_rn(values[i], values[i + 1]);
      words.words[i / 2] =
          static_cast<uint32_t>(__bfloat16_as_ushort(pair.y)) << 16 | __bfloat16_as_ushort(pair.x);
    }
  }
  store_words<N>(p, words);
}

}  // namespace moesaic::ops
