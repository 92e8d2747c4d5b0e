#include "ops/matmul/mixed_cuda.h"

#include "ops/matmul/plain_product.cuh"

namespace moesaic::ops {
namespace {

constexpr int kThreads = 256;

/// The three numbers that sum up to x: what one leaves is exact in FP32. An infinity stays in the first alone.
__device__ void split(float x, __nv_bfloat16 (&parts)[kBf16Parts]) {
  float rest = x;
#pragma unroll
  for (int p = 0; p < kBf16Parts; ++p) {
    parts[p] = from_float<__nv_bfloat16>(rest);
    rest = isfinite(to_float(parts[p])) ? rest - to_float(parts[p]) : 0;
  }
}
__device__ void split(__nv_bfloat16 x, __nv_bfloat16 (&parts)[kBf16Parts]) {
#pragma unroll
  for (int p = 0; p < kBf16Parts; ++p) parts[p] = x;
}

template <class T>
__global__ void parts_kernel(int64_t count, int64_t cols, const T* x, int64_t row_stride, int64_t part_stride,
                             __nv_bfloat16* parts) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
    __nv_bfloat16 values[kBf16Parts];
    split(x[i], values);
    const int64_t at = i / cols * row_stride + i % cols;
#pragma unroll
    for (int p = 0; p < kBf16Parts; ++p) parts[p * part_stride + at] = values[p];
  }
}

__global__ void __launch_bounds__(kPlainTile* kPlainTile)
    plain_kernel(int64_t m, int64_t n, int64_t k, PlainMatrix<float> a, PlainMatrix<float> b, bool accumulate,
                 __nv_bfloat16* out) {
  const int64_t col = static_cast<int64_t>(blockIdx.x) * kPlainTile;
  for (int64_t row = static_cast<int64_t>(blockIdx.y) * kPlainTile; row < m;
       row += static_cast<int64_t>(gridDim.y) * kPlainTile) {
    float sum = plain_sum(
        k, [&](int i, int64_t p) { return row + i < m ? a(row + i, p) : 0; },
        [&](int64_t p, int j) { return col + j < n ? b(p, col + j) : 0; });
    const int64_t i = row + threadIdx.y, j = col + threadIdx.x;
    if (i >= m || j >= n) continue;
    if (accumulate) sum += to_float(out[i * n + j]);
    out[i * n + j] = from_float<__nv_bfloat16>(sum);
  }
}

}  // namespace

void write_parts(cudaStream_t stream, DType type, int64_t rows, int64_t cols, const void* x,
                 int64_t row_stride, int64_t part_stride, void* parts) {
  const int64_t count = rows * cols;
  with_float(type, [&](auto zero) {
    using T = CudaType<decltype(zero)>;
    parts_kernel<<<num_blocks(ceil_div(count, kThreads)), kThreads, 0, stream>>>(
        count, cols, static_cast<const T*>(x), row_stride, part_stride, static_cast<__nv_bfloat16*>(parts));
  });
}

void plain_matmul(cudaStream_t stream, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k,
                  const float* a, const float* b, bool accumulate, bf16* out) {
  if (m == 0 || n == 0) return;
  const PlainMatrix<float> a_matrix{a, trans_a ? 1 : k, trans_a ? m : 1},
      b_matrix{b, trans_b ? 1 : n, trans_b ? k : 1};
  const dim3 grid(static_cast<unsigned>(ceil_div(n, kPlainTile)),
                  static_cast<unsigned>(std::min<int64_t>(ceil_div(m, kPlainTile), 65535)));
  plain_kernel<<<grid, dim3(kPlainTile, kPlainTile), 0, stream>>>(m, n, k, a_matrix, b_matrix, accumulate,
                                                                  cuda_pointer(out));
}

}  // namespace moesaic::ops
