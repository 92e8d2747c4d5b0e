#include <cmath>

#include "ops/attention/attention_bodies.h"
#include "ops/attention/blocks.h"
#include "ops/cpu_op.h"
#include "ops/vector_math.h"

namespace moesaic::ops {
namespace {

using namespace attention;

/// Where one head of one sequence lies: its columns of the first row.
template <class T>
struct Columns {
  const T* data;
  int64_t stride;  // elements between rows
};

/// What all query heads of one key/value head share.
struct KeyValue {
  float *keys, *values, *d_keys, *d_values;  // [S rounded up, width]
};

/// Adds one query head's part to d_keys and d_values, and writes d_q.
template <class T>
void backward_head(Columns<T> q, Columns<T> o, Columns<T> d_o, const float* lse, const int32_t* doc_start,
                   int64_t S, int64_t A, const KeyValue& kv, T* d_q) {
  const int64_t width = padded(A);
  const float scale = 1 / std::sqrt(static_cast<float>(A));
  float* queries = scratch<struct BackwardQueries>(kBlock * width);  // times scale
  float* turned_queries = scratch<struct BackwardTurnedQueries>(kBlock * width);
  float* d_out = scratch<struct BackwardDOut>(kBlock * width);
  float* turned_d_out = scratch<struct BackwardTurnedDOut>(kBlock * width);
  float* probs = scratch<struct BackwardProbs>(kBlock * kBlock);
  float* d_scores = scratch<struct BackwardDScores>(kBlock * kBlock);
  float* d_queries = scratch<struct BackwardDQueries>(kBlock * width);
  alignas(64) float row_lse[kBlock], delta[kBlock];
  for (int64_t first = 0; first < S; first += kBlock) {
    const int64_t rows = std::min(kBlock, S - first);
    const Visibility visibility(first, rows, doc_start);
    load_rows(q.data + first * q.stride, q.stride, rows, A, scale, queries);
    load_rows(d_o.data + first * d_o.stride, d_o.stride, rows, A, 1, d_out);
    transpose(queries, width, turned_queries);
    transpose(d_out, width, turned_d_out);
    for (int64_t i = 0; i < kBlock; ++i) {
      row_lse[i] = i < rows ? lse[first + i] : 0;
      delta[i] = 0;
      for (int64_t a = 0; i < rows && a < A; ++a)
        delta[i] += d_out[i * width + a] * static_cast<float>(o.data[(first + i) * o.stride + a]);
    }
    std::fill_n(d_queries, kBlock * width, 0.0f);
    for (int64_t block = visibility.first_block(); block * kBlock <= first; ++block) {
      const int64_t at = block * kBlock * width;
      product(kBlock, width, kv.keys + at, width, 1, turned_queries, probs, false);
      product(kBlock, width, kv.values + at, width, 1, turned_d_out, d_scores, false);
      for (int64_t j = 0; j < kBlock; ++j)
        for (int64_t i = 0; i < kBlock; ++i)
          probs[j * kBlock + i] = fast_exp(probs[j * kBlock + i] - row_lse[i]);
      if (!visibility.whole(block)) visibility.hide(block, 0, probs);
      for (int64_t j = 0; j < kBlock; ++j)
        for (int64_t i = 0; i < kBlock; ++i)
          d_scores[j * kBlock + i] = probs[j * kBlock + i] * (d_scores[j * kBlock + i] - delta[i]);
      product(width, kBlock, probs, kBlock, 1, d_out, kv.d_values + at, true);
      product(width, kBlock, d_scores, kBlock, 1, queries, kv.d_keys + at, true);
      product(width, kBlock, d_scores, 1, kBlock, kv.keys + at, d_queries, true);
    }
    for (int64_t i = 0; i < rows; ++i)
      store_row(d_queries + i * width, scale, A, d_q + (first + i) * q.stride);
  }
}

}  // namespace

void attention_backward_cpu(const OpContext& c, const AttentionBackward& args) {
  with_float(c.dtype(args.qkv), [&](auto zero) {
    using T = decltype(zero);
    const Shape& shape = c.shape(args.qkv);
    const int64_t S = shape[1], H = args.num_heads, G = args.num_kv_heads, A = args.head_dim, row = shape[2];
    const int64_t size = round_up(S, kBlock) * padded(A);
    const T *all_qkv = c.in<T>(args.qkv), *all_o = c.in<T>(args.o), *all_d_o = c.in<T>(args.d_o);
    const float* lse = c.in<float>(args.lse);
    const int32_t* doc_start = in_or_null<int32_t>(c, args.doc_start);
    T* all_d_qkv = c.out<T>(args.d_qkv);
    parallel_for(shape[0] * G, [&](int64_t index) {
      const int64_t b = index / G, group = index % G;
      const KeyValue kv{scratch<struct BackwardKeys>(size), scratch<struct BackwardValues>(size),
                        scratch<struct BackwardDKeys>(size), scratch<struct BackwardDValues>(size)};
      const T* qkv = all_qkv + b * S * row;
      T* d_qkv = all_d_qkv + b * S * row;
      const int64_t k = (H + group) * A, v = (H + G + group) * A;
      load_rows(qkv + k, row, S, A, 1, kv.keys);
      load_rows(qkv + v, row, S, A, 1, kv.values);
      std::fill_n(kv.d_keys, size, 0.0f);
      std::fill_n(kv.d_values, size, 0.0f);
      for (int64_t h = group * (H / G); h < (group + 1) * (H / G); ++h) {
        const int64_t at = (b * S * H + h) * A;
        backward_head<T>({qkv + h * A, row}, {all_o + at, H * A}, {all_d_o + at, H * A},
                         lse + (b * H + h) * S, doc_start ? doc_start + b * S : nullptr, S, A, kv,
                         d_qkv + h * A);
      }
      for (int64_t i = 0; i < S; ++i) {
        store_row(kv.d_keys + i * padded(A), 1, A, d_qkv + i * row + k);
        store_row(kv.d_values + i * padded(A), 1, A, d_qkv + i * row + v);
      }
    });
  });
}

}  // namespace moesaic::ops
