#pragma once
// The products that no library makes: odd widths, unusual types. Right for every shape, and slow (a few TFLOP/s).
#include "ops/cuda_op.cuh"

namespace moesaic::ops {

/// A block of kPlainTile x kPlainTile threads makes a tile of as many outputs.
inline constexpr int kPlainTile = 16;

/// The sum over p < k of a(i, p) b(p, j) for the output (i, j) = (threadIdx.y, threadIdx.x) of this block's tile, in FP32,
/// in order of p. a and b are asked for places within the tile and answer 0 where the tile reaches beyond the matrix.
/// Every thread of the block calls it, with the same k.
template <class A, class B>
__device__ float plain_sum(int64_t k, const A& a, const B& b) {
  __shared__ float a_tile[kPlainTile][kPlainTile + 1], b_tile[kPlainTile][kPlainTile + 1];
  const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y);
  float sum = 0;
  for (int64_t first = 0; first < k; first += kPlainTile) {
    a_tile[y][x] = first + x < k ? a(y, first + x) : 0;
    b_tile[y][x] = first + y < k ? b(first + y, x) : 0;
    __syncthreads();
#pragma unroll
    for (int p = 0; p < kPlainTile; ++p) sum += a_tile[y][p] * b_tile[p][x];
    __syncthreads();
  }
  return sum;
}

/// An operand as it lies in memory: element (row, col) at data[row * row_stride + col * col_stride]; row_map, when not
/// null, leads to the row of data that is read in place of each row.
template <class T>
struct PlainMatrix {
  const T* data;
  int64_t row_stride, col_stride;
  const int32_t* row_map = nullptr;
  __device__ float operator()(int64_t row, int64_t col) const {
    return to_float(data[(row_map == nullptr ? row : row_map[row]) * row_stride + col * col_stride]);
  }
};

}  // namespace moesaic::ops
