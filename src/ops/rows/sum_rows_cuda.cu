#include "ops/rows/row_pieces.cuh"
#include "ops/rows/rows_bodies.h"

namespace moesaic::ops {
namespace {

constexpr int kEntries = 4;  // rows of x that a lane has in flight

template <class X, class A, class Y>
struct Pointers {
  const X* x;
  const A* add;
  Y* y;
  const int32_t *map, *map_row, *count;
  int64_t num_rows, num_entries, width;
};

/// N elements a pack, kDepth packs a lane.
template <int N, int kDepth, class X, class A, class Y>
__global__ void __launch_bounds__(kPieceThreads) sum_rows_kernel(Pointers<X, A, Y> p) {
  const int64_t row_packs = p.width / N;
  for_row_pieces<kDepth>(num_rows(p.count, p.num_rows), row_packs, [&](int64_t row, int64_t pack) {
    const int32_t* entries = p.map + (p.map_row == nullptr ? row : p.map_row[row]) * p.num_entries;
    float totals[kDepth][N] = {};
    if (p.add != nullptr) {
#pragma unroll
      for (int d = 0; d < kDepth; ++d) {
        if (pack + 32 * d >= row_packs) continue;
        const auto add = load_words<N>(p.add + row * p.width + (pack + 32 * d) * N);
#pragma unroll
        for (int i = 0; i < N; ++i) totals[d][i] = add[i];
      }
    }
    for (int64_t k = 0; k < p.num_entries; k += kEntries) {
      // The branches are the same for a whole warp, so the loads of all entries are in flight before the first sum.
      int32_t from[kEntries];
      Words<X, N> rows[kEntries][kDepth];
#pragma unroll
      for (int e = 0; e < kEntries; ++e) from[e] = k + e < p.num_entries ? entries[k + e] : -1;
#pragma unroll
      for (int e = 0; e < kEntries; ++e) {
        if (from[e] < 0) continue;
        const X* x = p.x + from[e] * p.width;
#pragma unroll
        for (int d = 0; d < kDepth; ++d)
          if (pack + 32 * d < row_packs) rows[e][d] = load_words<N>(x + (pack + 32 * d) * N);
      }
#pragma unroll
      for (int e = 0; e < kEntries; ++e) {
        if (from[e] < 0) continue;
#pragma unroll
        for (int d = 0; d < kDepth; ++d)
          if (pack + 32 * d < row_packs)
#pragma unroll
            for (int i = 0; i < N; ++i) totals[d][i] += rows[e][d][i];
      }
    }
#pragma unroll
    for (int d = 0; d < kDepth; ++d)
      if (pack + 32 * d < row_packs) store_words(p.y + row * p.width + (pack + 32 * d) * N, totals[d]);
  });
}

template <int N, int kDepth, class X, class A, class Y>
void launch(cudaStream_t stream, const Pointers<X, A, Y>& p) {
  sum_rows_kernel<N, kDepth><<<piece_blocks<kDepth>(p.num_rows, p.width / N), kPieceThreads, 0, stream>>>(p);
}

template <class X, class A, class Y>
void run(const OpContext& c, const SumRows& args) {
  constexpr int kBytes = std::max({sizeof(X), sizeof(A), sizeof(Y)}), N = 16 / kBytes;
  const Pointers<CudaType<X>, CudaType<A>, CudaType<Y>> p{.x = cuda_pointer(c.in<X>(args.x)),
                                                          .add = cuda_pointer(in_or_null<A>(c, args.add)),
                                                          .y = cuda_pointer(c.out<Y>(args.y)),
                                                          .map = c.in<int32_t>(args.map),
                                                          .map_row = in_or_null<int32_t>(c, args.map_row),
                                                          .count = count_pointer(c, args.count_of),
                                                          .num_rows = c.shape(args.y).rows(),
                                                          .num_entries = c.shape(args.map)[-1],
                                                          .width = c.shape(args.y)[-1]};
  const bool aligned = packs(p.x, p.width, N, sizeof(X)) && packs(p.add, p.width, N, sizeof(A)) &&
                       packs(p.y, p.width, N, sizeof(Y));
  if (aligned)
    launch<N, 16 / N>(cuda_stream(c), p);
  else
    launch<1, 4>(cuda_stream(c), p);
}

}  // namespace

void sum_rows_cuda(const OpContext& c, const SumRows& args) {
  with_float(c.dtype(args.x), [&](auto x_zero) {
    with_float(c.dtype(args.add ? args.add : args.y), [&](auto add_zero) {
      with_float(c.dtype(args.y),
                 [&](auto y_zero) { run<decltype(x_zero), decltype(add_zero), decltype(y_zero)>(c, args); });
    });
  });
}

}  // namespace moesaic::ops
