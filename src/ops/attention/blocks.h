#pragma once
// Attention on the CPU works on blocks of kBlock queries by kBlock keys. Scores lie transposed, [keys, queries], so
// that the softmax of a query runs down a vector lane and never across one.
#include <algorithm>
#include <cstdint>

#include "base/check.h"

namespace moesaic::ops::attention {

inline constexpr int64_t kBlock = 32;
/// Floats of the widest register that the build may use: 64 bytes with AVX-512, 32 with AVX2, 16 elsewhere.
inline constexpr int64_t kLanes = __BIGGEST_ALIGNMENT__ / 4;
using Vector [[gnu::vector_size(kLanes * 4), gnu::may_alias]] = float;

/// Width of a head in scratch memory, zeros added.
constexpr int64_t padded(int64_t head_dim) {
  return round_up(head_dim, kLanes);
}

/// One tile of `product`: kRows x (kVectors * kLanes) sums that stay in registers.
template <int kRows, int kVectors>
inline void product_tile(int64_t terms, const float* a, int64_t a_row, int64_t a_term, const float* b,
                         int64_t ldb, float* c, int64_t ldc, bool add) {
  Vector sum[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v)
      sum[r][v] = add ? *reinterpret_cast<const Vector*>(c + r * ldc + v * kLanes) : Vector{};
  for (int64_t p = 0; p < terms; ++p) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v)
        sum[r][v] += a[r * a_row + p * a_term] * *reinterpret_cast<const Vector*>(b + p * ldb + v * kLanes);
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) *reinterpret_cast<Vector*>(c + r * ldc + v * kLanes) = sum[r][v];
}

/// c [kBlock, n] = (or += when add) a b: a [kBlock, terms] has any strides (so it may be transposed), rows of b
/// [terms, n] and c lie n apart; n a multiple of kLanes. Fixed order of sums.
inline void product(int64_t n, int64_t terms, const float* a, int64_t a_row, int64_t a_term, const float* b,
                    float* c, bool add) {
  constexpr int kRows = kLanes == 16 ? 8 : 4;  // AVX-512 has 32 registers, the others 16
  for (int64_t i = 0; i < kBlock; i += kRows) {
    int64_t j = 0;
    for (; j + 2 * kLanes <= n; j += 2 * kLanes)
      product_tile<kRows, 2>(terms, a + i * a_row, a_row, a_term, b + j, n, c + i * n + j, n, add);
    if (j < n) product_tile<kRows, 1>(terms, a + i * a_row, a_row, a_term, b + j, n, c + i * n + j, n, add);
  }
}

/// to [rows rounded up to kBlock, padded(A)] = factor * from [rows, A] (rows `stride` apart), zeros elsewhere.
template <class T>
void load_rows(const T* from, int64_t stride, int64_t rows, int64_t A, float factor, float* to) {
  const int64_t width = padded(A);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t a = 0; a < A; ++a) to[i * width + a] = factor * static_cast<float>(from[i * stride + a]);
    std::fill(to + i * width + A, to + (i + 1) * width, 0.0f);
  }
  std::fill(to + rows * width, to + round_up(rows, kBlock) * width, 0.0f);
}

/// to [rows, A] = factor[i] * from [rows, padded(A)].
template <class T>
void store_row(const float* from, float factor, int64_t A, T* to) {
  for (int64_t a = 0; a < A; ++a) to[a] = static_cast<T>(factor * from[a]);
}

/// to [width, kBlock] = from [kBlock, width] transposed.
inline void transpose(const float* from, int64_t width, float* to) {
  for (int64_t a = 0; a < width; ++a)
    for (int64_t i = 0; i < kBlock; ++i) to[a * kBlock + i] = from[i * width + a];
}

/// The queries of one block: which keys each may see.
class Visibility {
 public:
  /// Queries first .. first + rows of a sequence; doc_start: of that sequence, or null.
  Visibility(int64_t first, int64_t rows, const int32_t* doc_start) {
    for (int64_t i = 0; i < kBlock; ++i) {
      last_[i] = static_cast<int32_t>(first + i);
      first_[i] = doc_start && i < rows ? doc_start[first + i] : 0;
    }
    const auto [least, most] = std::minmax_element(first_, first_ + (doc_start ? rows : 1));
    first_block_ = *least / kBlock;
    begin_ = *most;
    end_ = first;
  }
  /// The first block of keys that any of them sees.
  int64_t first_block() const { return first_block_; }
  /// True when every query sees all keys of this block.
  bool whole(int64_t block) const { return block * kBlock >= begin_ && (block + 1) * kBlock <= end_ + 1; }
  /// scores [kBlock keys, kBlock queries] of a block: `hidden` where the query must not see the key.
  void hide(int64_t block, float hidden, float* scores) const {
    for (int64_t j = 0; j < kBlock; ++j) {
      const auto key = static_cast<int32_t>(block * kBlock + j);
      for (int64_t i = 0; i < kBlock; ++i) {
        const bool visible = (key <= last_[i]) & (key >= first_[i]);
        scores[j * kBlock + i] = visible ? scores[j * kBlock + i] : hidden;
      }
    }
  }

 private:
  int32_t first_[kBlock], last_[kBlock];
  int64_t first_block_, begin_, end_;
};

}  // namespace moesaic::ops::attention
