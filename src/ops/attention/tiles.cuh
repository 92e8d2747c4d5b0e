#pragma once
// Tiles: some rows of one head in shared memory, padded with zeros to kA columns, and products of them. A warp owns 16 rows
// of a product; its sums [16, kCols] lie as mma's results, sums[c / 8] holding columns c .. c + 7.
#include <climits>

#include "ops/attention/attention_kernels.h"
#include "ops/attention/mma.cuh"

namespace moesaic::ops::attention {

using Bf16 = __nv_bfloat16;

constexpr int kWarps = 8, kThreads = 32 * kWarps;
constexpr int kRows = 16 * kWarps;  // of the tile that a block owns
constexpr float kLog2e = 1.4426950408889634f;

/// Elements between rows of a tile: odd in units of 16 bytes, so that ldmatrix finds the 8 rows in different banks.
template <int kA>
constexpr int kPitch = kA + 8;

/// One head of one sequence in global memory.
struct Head {
  const Bf16* data;
  int64_t stride;  // elements between rows
};

/// Starts to copy rows first .. first + kCount of a head to a tile, as a part of the thread's open group. vectors: rows
/// can be read by 16 bytes.
template <int kCount, int kA>
__device__ void start_tile(Bf16* tile, Head head, int first, int S, int A, bool vectors) {
  constexpr int kChunks = kA / 8;
  for (int i = threadIdx.x; i < kCount * kChunks; i += kThreads) {
    const int row = first + i / kChunks, column = i % kChunks * 8;
    Bf16* to = tile + i / kChunks * kPitch<kA> + column;
    const Bf16* from = head.data + row * head.stride + column;
    if (vectors) {
      const bool present = row < S && column < A;
      start_copy<16>(to, present ? from : head.data, present);
    } else {
      for (int k = 0; k < 8; ++k) to[k] = row < S && column + k < A ? from[k] : __float2bfloat16_rn(0);
    }
  }
}

/// sums [16, kCols] += a b^T: 16 rows of a tile, kCols rows of another.
template <int kA, int kCols>
__device__ void multiply_rows(float (&sums)[kCols / 8][4], const Bf16* a, const Bf16* b) {
  const int lane = threadIdx.x % 32;
  const Bf16* a_lane = a + lane % 16 * kPitch<kA> + lane / 16 * 8;
  const Bf16* b_lane = b + (lane / 16 * 8 + lane % 8) * kPitch<kA> + lane / 8 % 2 * 8;
#pragma unroll 4  // more would keep too many parts in registers at once
  for (int k = 0; k < kA; k += 16) {
    uint32_t a_part[4];
    load_matrices(a_part, a_lane + k);
#pragma unroll
    for (int n = 0; n < kCols; n += 16) {
      uint32_t b_part[4];
      load_matrices(b_part, b_lane + n * kPitch<kA> + k);
      mma(sums[n / 8], a_part, b_part[0], b_part[1]);
      mma(sums[n / 8 + 1], a_part, b_part[2], b_part[3]);
    }
  }
}

/// sums [16, kCols] += weights [16, kTerms], rounded to BF16, times b: kTerms rows of a tile, from the column that b points
/// at on.
template <int kA, int kCols, int kTerms>
__device__ void multiply(float (&sums)[kCols / 8][4], const float (&weights)[kTerms / 8][4], const Bf16* b) {
  const int lane = threadIdx.x % 32;
  const Bf16* b_lane = b + lane % 16 * kPitch<kA> + lane / 16 * 8;
#pragma unroll
  for (int k = 0; k < kTerms; k += 16) {
    const float(&left)[4] = weights[k / 8], (&right)[4] = weights[k / 8 + 1];
    const uint32_t a_part[4] = {two_bf16(left[0], left[1]), two_bf16(left[2], left[3]),
                                two_bf16(right[0], right[1]), two_bf16(right[2], right[3])};
#pragma unroll
    for (int n = 0; n < kCols; n += 16) {
      uint32_t b_part[4];
      load_turned_matrices(b_part, b_lane + k * kPitch<kA> + n);
      mma(sums[n / 8], a_part, b_part[0], b_part[1]);
      mma(sums[n / 8 + 1], a_part, b_part[2], b_part[3]);
    }
  }
}

template <int kTiles>
__device__ void clear(float (&sums)[kTiles][4]) {
#pragma unroll
  for (int n = 0; n < kTiles; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) sums[n][e] = 0;
}

/// Stores a warp's sums [16, kCols] times factor[l/4 or l/4 + 8] as BF16: row r to row first + r of `to`, if below S; column
/// c to column first_column + c, if below A. pairs: two neighbours can be stored as 4 bytes.
template <int kCols>
__device__ void store_rows(const float (&sums)[kCols / 8][4], const float (&factor)[2], Bf16* to,
                           int64_t stride, int first, int S, int first_column, int A, bool pairs) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first + lane / 4 + 8 * half;
    if (row >= S) continue;
#pragma unroll
    for (int n = 0; n < kCols / 8; ++n) {
      const int column = first_column + n * 8 + lane % 4 * 2;
      const float x = sums[n][2 * half] * factor[half], y = sums[n][2 * half + 1] * factor[half];
      Bf16* at = to + row * stride + column;
      if (pairs && column + 1 < A) {
        *reinterpret_cast<__nv_bfloat162*>(at) = __floats2bfloat162_rn(x, y);
      } else {
        if (column < A) at[0] = __float2bfloat16_rn(x);
        if (column + 1 < A) at[1] = __float2bfloat16_rn(y);
      }
    }
  }
}

/// The least x of the block, on every thread. Once per kernel.
__device__ inline int block_min(int x) {
  __shared__ int least[kWarps];
  for (int lane = 16; lane > 0; lane /= 2) x = min(x, __shfl_xor_sync(0xffffffffu, x, lane));
  if (threadIdx.x % 32 == 0) least[threadIdx.x / 32] = x;
  __syncthreads();
  for (int w = 0; w < kWarps; ++w) x = min(x, least[w]);
  return x;
}

/// Whether heads can be copied by 16 bytes and stored by 4: every head's rows begin at such a multiple.
inline bool aligned_heads(int A, const void* first, const void* second) {
  return A % 8 == 0 && (reinterpret_cast<uintptr_t>(first) | reinterpret_cast<uintptr_t>(second)) % 16 == 0;
}

}  // namespace moesaic::ops::attention
