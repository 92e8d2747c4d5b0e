#pragma once
// FP32 matrix product of the CPU ops, by oneDNN or by plain loops: which of gemm_onednn.cpp and gemm_plain.cpp is linked
// is a choice of the build.
#include <cstdint>

namespace moesaic::ops {

/// c [m, n] = op(a) op(b) + beta c, row-major; op = transpose when asked; lda, ldb, ldc: elements between rows of what is
/// stored; beta 0 does not read c. Requires k > 0. Runs on the calling thread alone. The bits of a row of c depend
/// on neither m nor the row's place.
void gemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const float* a, int64_t lda,
          const float* b, int64_t ldb, float beta, float* c, int64_t ldc);

/// Takes the memory that gemm may need on the calling thread for any m and for up to k terms, so that it takes none later.
void reserve_gemm(bool trans_a, bool trans_b, int64_t n, int64_t k);

}  // namespace moesaic::ops
