#include <algorithm>

#include "ops/cpu_op.h"
#include "ops/matmul/gemm.h"

namespace moesaic::ops {
namespace {
struct Turned;
}

void reserve_gemm(bool, bool trans_b, int64_t n, int64_t k) {
  if (trans_b) scratch<Turned>(k * n);
}

void gemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const float* a, int64_t lda,
          const float* b, int64_t ldb, float beta, float* c, int64_t ldc) {
  if (trans_b) {  // the inner loop runs along a row of b
    float* turned = scratch<Turned>(k * n);
    for (int64_t j = 0; j < n; ++j)
      for (int64_t p = 0; p < k; ++p) turned[p * n + j] = b[j * ldb + p];
    b = turned;
    ldb = n;
  }
  for (int64_t i = 0; i < m; ++i) {
    float* row = c + i * ldc;
    if (beta == 0)
      std::fill_n(row, n, 0.0f);
    else
      for (int64_t j = 0; j < n; ++j) row[j] *= beta;
    for (int64_t p = 0; p < k; ++p) {
      const float factor = trans_a ? a[p * lda + i] : a[i * lda + p];
      for (int64_t j = 0; j < n; ++j) row[j] += factor * b[p * ldb + j];
    }
  }
}

}  // namespace moesaic::ops
