#include <cmath>
#include <limits>

#include "ops/attention/attention_bodies.h"
#include "ops/attention/blocks.h"
#include "ops/cpu_op.h"
#include "ops/vector_math.h"

namespace moesaic::ops {
namespace {

using namespace attention;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Running softmax of kBlock queries: largest score so far, sum of exponentials relative to it.
struct Running {
  alignas(64) float largest[kBlock], sum[kBlock], rescale[kBlock];

  Running() {
    std::fill_n(largest, kBlock, -1e30f);  // finite: minus infinity, a hidden score, minus this is no NaN
    std::fill_n(sum, kBlock, 0.0f);
  }
  /// scores [keys, queries] -> their exponentials; rescale: what earlier sums must be multiplied with.
  void add(float* scores) {
    alignas(64) float now[kBlock];
    for (int64_t i = 0; i < kBlock; ++i) now[i] = largest[i];
    for (int64_t j = 0; j < kBlock; ++j)
      for (int64_t i = 0; i < kBlock; ++i)
        now[i] = scores[j * kBlock + i] > now[i] ? scores[j * kBlock + i] : now[i];
    for (int64_t i = 0; i < kBlock; ++i) {
      rescale[i] = fast_exp(largest[i] - now[i]);
      largest[i] = now[i];
      sum[i] *= rescale[i];
    }
    for (int64_t j = 0; j < kBlock; ++j)
      for (int64_t i = 0; i < kBlock; ++i) {
        const float e = fast_exp(scores[j * kBlock + i] - now[i]);
        scores[j * kBlock + i] = e;
        sum[i] += e;
      }
  }
};

/// One query head of one sequence. q, k, v: its columns of the first row, rows `row` apart; o's rows `o_row` apart.
template <class T>
void forward_head(const T* q, const T* k, const T* v, int64_t row, int64_t S, int64_t A,
                  const int32_t* doc_start, T* o, int64_t o_row, float* lse) {
  const int64_t width = padded(A), rows_padded = round_up(S, kBlock);
  float* keys = scratch<struct ForwardKeys>(rows_padded * width);
  float* values = scratch<struct ForwardValues>(rows_padded * width);
  float* queries = scratch<struct ForwardQueries>(kBlock * width);
  float* turned = scratch<struct ForwardTurned>(kBlock * width);
  float* scores = scratch<struct ForwardScores>(kBlock * kBlock);
  float* sums = scratch<struct ForwardSums>(kBlock * width);
  load_rows(k, row, S, A, 1, keys);
  load_rows(v, row, S, A, 1, values);
  for (int64_t first = 0; first < S; first += kBlock) {
    const int64_t rows = std::min(kBlock, S - first);
    const Visibility visibility(first, rows, doc_start);
    load_rows(q + first * row, row, rows, A, 1 / std::sqrt(static_cast<float>(A)), queries);
    transpose(queries, width, turned);
    std::fill_n(sums, kBlock * width, 0.0f);
    Running running;
    for (int64_t block = visibility.first_block(); block * kBlock <= first; ++block) {
      product(kBlock, width, keys + block * kBlock * width, width, 1, turned, scores, false);
      if (!visibility.whole(block)) visibility.hide(block, -kInfinity, scores);
      running.add(scores);
      for (int64_t i = 0; i < kBlock; ++i)
        for (int64_t a = 0; a < width; ++a) sums[i * width + a] *= running.rescale[i];
      product(width, kBlock, scores, 1, kBlock, values + block * kBlock * width, sums, true);
    }
    for (int64_t i = 0; i < rows; ++i) {
      store_row(sums + i * width, 1 / running.sum[i], A, o + (first + i) * o_row);
      lse[first + i] = running.largest[i] + std::log(running.sum[i]);
    }
  }
}

}  // namespace

void attention_forward_cpu(const OpContext& c, const AttentionForward& args) {
  with_float(c.dtype(args.qkv), [&](auto zero) {
    using T = decltype(zero);
    const Shape& shape = c.shape(args.qkv);
    const int64_t S = shape[1], H = args.num_heads, G = args.num_kv_heads, A = args.head_dim, row = shape[2];
    const T* qkv = c.in<T>(args.qkv);
    const int32_t* doc_start = in_or_null<int32_t>(c, args.doc_start);
    T* o = c.out<T>(args.o);
    float* lse = c.out<float>(args.lse);
    parallel_for(shape[0] * H, [&](int64_t index) {
      const int64_t b = index / H, h = index % H, group = h / (H / G);
      const T* sequence = qkv + b * S * row;
      forward_head(sequence + h * A, sequence + (H + group) * A, sequence + (H + G + group) * A, row, S, A,
                   doc_start ? doc_start + b * S : nullptr, o + (b * S * H + h) * A, H * A, lse + index * S);
    });
  });
}

}  // namespace moesaic::ops
