#include <dnnl.h>

#include <algorithm>

#include "ops/cpu_op.h"
#include "ops/matmul/gemm.h"

// What makes the bits of a row independent of m, measured with oneDNN 2.6 on AVX-512: one thread; at least 16 rows when
// only b is transposed and 2 otherwise (below, other kernels sum in another order); sums of at most 512 terms at a time
// (above, the order depends on whether m is large enough for operands to be packed).
namespace moesaic::ops {
namespace {

constexpr int64_t kMaxTerms = 512;

/// oneDNN takes its number of threads from OpenMP.
class OneThread {
 public:
  OneThread() : before_(num_threads()) {
    if (before_ > 1) set_num_threads(1);
  }
  ~OneThread() {
    if (before_ > 1) set_num_threads(before_);
  }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

void sgemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const float* a, int64_t lda,
           const float* b, int64_t ldb, float beta, float* c, int64_t ldc) {
  const OneThread one;
  for (int64_t first = 0; first < k; first += kMaxTerms) {
    const float* a_part = a + (trans_a ? first * lda : first);
    const float* b_part = b + (trans_b ? first : first * ldb);
    const dnnl_status_t status =
        dnnl_sgemm(trans_a ? 'T' : 'N', trans_b ? 'T' : 'N', m, n, std::min(kMaxTerms, k - first), 1.0f,
                   a_part, lda, b_part, ldb, first == 0 ? beta : 1.0f, c, ldc);
    MOESAIC_CHECK(status == dnnl_success, "dnnl_sgemm of {} x {} x {} gave {}", m, n, k,
                  static_cast<int>(status));
  }
}

/// Products with fewer rows are padded to that many.
int64_t smallest_rows(bool trans_a, bool trans_b) {
  return trans_b && !trans_a ? 16 : 2;
}

struct PaddedA;
struct PaddedC;

}  // namespace

void reserve_gemm(bool trans_a, bool trans_b, int64_t n, int64_t k) {
  scratch<PaddedA>(smallest_rows(trans_a, trans_b) * k);
  scratch<PaddedC>(smallest_rows(trans_a, trans_b) * n);
}

void gemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const float* a, int64_t lda,
          const float* b, int64_t ldb, float beta, float* c, int64_t ldc) {
  const int64_t rows = smallest_rows(trans_a, trans_b);
  if (m >= rows) return sgemm(trans_a, trans_b, m, n, k, a, lda, b, ldb, beta, c, ldc);
  float* padded_a = scratch<PaddedA>(rows * k);
  float* padded_c = scratch<PaddedC>(rows * n);
  std::fill_n(padded_a, rows * k, 0.0f);
  std::fill_n(padded_c, rows * n, 0.0f);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t p = 0; p < k; ++p) {
      if (trans_a)
        padded_a[p * rows + i] = a[p * lda + i];
      else
        padded_a[i * k + p] = a[i * lda + p];
    }
    if (beta != 0) std::copy_n(c + i * ldc, n, padded_c + i * n);
  }
  sgemm(trans_a, trans_b, rows, n, k, padded_a, trans_a ? rows : k, b, ldb, beta, padded_c, n);
  for (int64_t i = 0; i < m; ++i) std::copy_n(padded_c + i * n, n, c + i * ldc);
}

}  // namespace moesaic::ops
