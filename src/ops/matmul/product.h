#pragma once
// Matrix products over FP32 and BF16 operands on the CPU: widened block by block, FP32 inside, rounded once.
#include <algorithm>

#include "ops/cpu_op.h"
#include "ops/matmul/gemm.h"

namespace moesaic::ops {

/// Rows of a product that one call of gemm makes; 64 rows cost 10 % more time than 256, and more gain nothing.
inline constexpr int64_t kProductRows = 256;

struct ProductC;  // the use of scratch by block_product

/// c [m, n] = op(a) op(b), or c += with accumulate, on the calling thread. c's rows lie without gaps.
template <class C>
void block_product(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, Floats a, Floats b,
                   bool accumulate, C* c) {
  const float beta = accumulate ? 1.0f : 0.0f;
  if constexpr (std::is_same_v<C, float>) {
    gemm(trans_a, trans_b, m, n, k, a.data, a.stride, b.data, b.stride, beta, c, n);
  } else {
    float* wide = scratch<ProductC>(m * n);
    if (accumulate) convert(c, wide, m * n);
    gemm(trans_a, trans_b, m, n, k, a.data, a.stride, b.data, b.stride, beta, wide, n);
    convert(wide, c, m * n);
  }
}

/// Takes what block_product may need on the calling thread for products up to this size.
template <class C>
void reserve_block_product(bool trans_a, bool trans_b, int64_t max_m, int64_t n, int64_t max_k) {
  if constexpr (!std::is_same_v<C, float>) scratch<ProductC>(max_m * n);
  reserve_gemm(trans_a, trans_b, n, max_k);
}

/// block_product for whole matrices without gaps, on this rank's threads.
template <class A, class B, class C>
void product(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const A* a, const B* b,
             bool accumulate, C* c) {
  const int64_t share = round_up(ceil_div(m, num_threads()), 16);
  const int64_t block = std::min(share, kProductRows);
  parallel_for(ceil_div(m, block), [&](int64_t i) {
    const int64_t first = i * block, rows = std::min(block, m - first);
    const Floats a_block = trans_a ? float_rows<struct ProductA>(a + first, m, nullptr, k, rows)
                                   : float_rows<struct ProductA>(a + first * k, k, nullptr, rows, k);
    const Floats b_all = trans_b ? float_rows<struct ProductB>(b, k, nullptr, n, k)
                                 : float_rows<struct ProductB>(b, n, nullptr, k, n);
    block_product(trans_a, trans_b, rows, n, k, a_block, b_all, accumulate, c + first * n);
  });
}

}  // namespace moesaic::ops
