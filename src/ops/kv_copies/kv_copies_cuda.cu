#include "ops/kv_copies/kv_copies_bodies.h"
#include "ops/rows/row_pieces.cuh"

namespace moesaic::ops {
namespace {

constexpr int kDepth = 2, kCopies = 4;  // packs of a lane, copies of each in flight

/// A row of y is `queries` packs that are copied and then heads of `head` packs, each of which has num_copies copies in x.
template <int N, class T>
__global__ void __launch_bounds__(kPieceThreads)
    sum_kernel(const T* x, T* y, int64_t num_rows, int64_t wide, int64_t narrow, int64_t queries,
               int64_t head, int64_t num_copies) {
  for_row_pieces<kDepth>(num_rows, narrow, [&](int64_t row, int64_t pack) {
#pragma unroll
    for (int d = 0; d < kDepth; ++d, pack += 32) {
      if (pack >= narrow) continue;
      const T* from = x + (row * wide + pack) * N;
      T* to = y + (row * narrow + pack) * N;
      if (pack < queries) {
        store_words<N>(to, load_words<N>(from));
        continue;
      }
      from += (pack - queries) / head * head * (num_copies - 1) * N;
      float sums[N] = {};
      for (int64_t copy = 0; copy < num_copies; copy += kCopies) {
        Words<T, N> copies[kCopies];
#pragma unroll
        for (int i = 0; i < kCopies; ++i)
          if (copy + i < num_copies) copies[i] = load_words<N>(from + (copy + i) * head * N);
#pragma unroll
        for (int i = 0; i < kCopies; ++i)
          if (copy + i < num_copies)
#pragma unroll
            for (int k = 0; k < N; ++k) sums[k] += copies[i][k];
      }
      store_words(to, sums);
    }
  });
}

template <int N, class T>
void launch(cudaStream_t stream, const T* x, T* y, int64_t rows, int64_t wide, int64_t narrow,
            const SumKvCopies& args) {
  sum_kernel<N><<<piece_blocks<kDepth>(rows, narrow / N), kPieceThreads, 0, stream>>>(
      x, y, rows, wide / N, narrow / N, args.num_heads * args.head_dim / N, args.head_dim / N,
      args.num_copies);
}

}  // namespace

void sum_kv_copies_cuda(const OpContext& c, const SumKvCopies& args) {
  with_float(c.dtype(args.x), [&](auto zero) {
    using T = decltype(zero);
    constexpr int N = 16 / sizeof(T);
    const auto* x = cuda_pointer(c.in<T>(args.x));
    auto* y = cuda_pointer(c.out<T>(args.y));
    const int64_t rows = c.shape(args.x).rows(), wide = c.shape(args.x)[-1], narrow = c.shape(args.y)[-1];
    if (packs(x, args.head_dim, N, sizeof(T)) && packs(y, args.head_dim, N, sizeof(T)))
      launch<N>(cuda_stream(c), x, y, rows, wide, narrow, args);
    else
      launch<1>(cuda_stream(c), x, y, rows, wide, narrow, args);
  });
}

}  // namespace moesaic::ops
