#include "ops/grouped_matmul/grouped_gemm_cuda.h"
#include "ops/matmul/plain_product.cuh"

// Every block belongs to one group (blockIdx.z) and walks that group's rows, so it needs no list of tiles.
namespace moesaic::ops {
namespace {

constexpr int kThreads = kPlainTile * kPlainTile;

unsigned tiles(int64_t extent, int64_t most) {
  return static_cast<unsigned>(std::clamp<int64_t>(ceil_div(extent, kPlainTile), 1, most));
}

/// y[row] = x[row] w of the row's group; x [R, k], w [k, n] within a group.
template <class T, class Y>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(int64_t all_rows, int64_t n, int64_t k, GroupRows rows, PlainMatrix<T> x, PlainMatrix<T> w,
                   Y* y) {
  const int64_t col = static_cast<int64_t>(blockIdx.x) * kPlainTile;
  const int64_t end = min(static_cast<int64_t>(rows.ends[blockIdx.z]), all_rows);
  w.data += static_cast<int64_t>(blockIdx.z) * n * k;
  for (int64_t row = rows.begins[blockIdx.z] + static_cast<int64_t>(blockIdx.y) * kPlainTile; row < end;
       row += static_cast<int64_t>(gridDim.y) * kPlainTile) {
    const float sum = plain_sum(
        k, [&](int i, int64_t p) { return row + i < end ? x(row + i, p) : 0; },
        [&](int64_t p, int j) { return col + j < n ? w(p, col + j) : 0; });
    const int64_t i = row + threadIdx.y, j = col + threadIdx.x;
    if (i < end && j < n) y[i * n + j] = from_float<Y>(sum);
  }
}

/// dw [n, k] of a group += dy^T x over the group's rows.
template <class DY, class X>
__global__ void __launch_bounds__(kThreads)
    weight_grad_kernel(int64_t all_rows, int64_t n, int64_t k, const int32_t* offsets, PlainMatrix<DY> dy,
                       PlainMatrix<X> x, bool accumulate, float* dw) {
  const int64_t begin = offsets[blockIdx.z],
                end = min(static_cast<int64_t>(offsets[blockIdx.z + 1]), all_rows);
  if (begin >= end && accumulate) return;
  dw += static_cast<int64_t>(blockIdx.z) * n * k;
  const int64_t col = static_cast<int64_t>(blockIdx.x) * kPlainTile;
  for (int64_t row = static_cast<int64_t>(blockIdx.y) * kPlainTile; row < n;
       row += static_cast<int64_t>(gridDim.y) * kPlainTile) {
    const float sum = plain_sum(
        max(end - begin, int64_t{0}),
        [&](int i, int64_t p) { return row + i < n ? dy(begin + p, row + i) : 0; },
        [&](int64_t p, int j) { return col + j < k ? x(begin + p, col + j) : 0; });
    const int64_t i = row + threadIdx.y, j = col + threadIdx.x;
    if (i < n && j < k) dw[i * k + j] = accumulate ? dw[i * k + j] + sum : sum;
  }
}

}  // namespace

void plain_grouped(cudaStream_t stream, GroupedShape s, GroupRows rows, bool trans_w, DType type,
                   const void* x, const int32_t* x_rows, const void* w, DType out_type, void* y) {
  const int64_t n = trans_w ? s.n : s.k, k = trans_w ? s.k : s.n;
  const dim3 grid(tiles(n, 1 << 20), tiles(s.num_rows, 64), static_cast<unsigned>(s.groups));
  with_float(type, [&](auto zero) {
    with_float(out_type, [&](auto out_zero) {
      using T = CudaType<decltype(zero)>;
      using Y = CudaType<decltype(out_zero)>;
      const PlainMatrix<T> x_matrix{static_cast<const T*>(x), k, 1, x_rows},
          w_matrix{static_cast<const T*>(w), trans_w ? 1 : n, trans_w ? k : 1};
      forward_kernel<<<grid, dim3(kPlainTile, kPlainTile), 0, stream>>>(s.num_rows, n, k, rows, x_matrix,
                                                                        w_matrix, static_cast<Y*>(y));
    });
  });
}

void plain_weight_grad(cudaStream_t stream, GroupedShape s, const int32_t* offsets, DType dy_type,
                       const void* dy, const int32_t* dy_rows, DType x_type, const void* x,
                       const int32_t* x_rows, bool accumulate, float* dw) {
  const dim3 grid(tiles(s.k, 1 << 20), tiles(s.n, 65535), static_cast<unsigned>(s.groups));
  with_float(dy_type, [&](auto dy_zero) {
    with_float(x_type, [&](auto x_zero) {
      using DY = CudaType<decltype(dy_zero)>;
      using X = CudaType<decltype(x_zero)>;
      const PlainMatrix<DY> dy_matrix{static_cast<const DY*>(dy), s.n, 1, dy_rows};
      const PlainMatrix<X> x_matrix{static_cast<const X*>(x), s.k, 1, x_rows};
      weight_grad_kernel<<<grid, dim3(kPlainTile, kPlainTile), 0, stream>>>(
          s.num_rows, s.n, s.k, offsets, dy_matrix, x_matrix, accumulate, dw);
    });
  });
}

}  // namespace moesaic::ops
