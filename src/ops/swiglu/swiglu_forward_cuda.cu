#include "ops/rows/row_pieces.cuh"
#include "ops/swiglu/sigmoid.cuh"
#include "ops/swiglu/swiglu_bodies.h"

namespace moesaic::ops {
namespace {

constexpr int kDepth = 2;  // packs of a and of b that a lane has in flight

template <int N, class T>
__global__ void __launch_bounds__(kPieceThreads)
    forward_kernel(const T* h, const float* weights, const int32_t* slots, const int32_t* count, T* y,
                   int64_t all_rows, int64_t width) {
  const int64_t row_packs = width / N;
  for_row_pieces<kDepth>(num_rows(count, all_rows), row_packs, [&](int64_t row, int64_t pack) {
    const T *a = h + row * 2 * width, *b = a + width;
    Words<T, N> a_packs[kDepth], b_packs[kDepth];
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
      if (pack + 32 * d >= row_packs) continue;
      a_packs[d] = load_words<N>(a + (pack + 32 * d) * N);
      b_packs[d] = load_words<N>(b + (pack + 32 * d) * N);
    }
    const float weight = weights == nullptr ? 1 : weights[slots[row]];
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
      if (pack + 32 * d >= row_packs) continue;
      float values[N];
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float x = a_packs[d][i];
        values[i] = x * sigmoid(x) * b_packs[d][i] * weight;
      }
      store_words(y + row * width + (pack + 32 * d) * N, values);
    }
  });
}

template <class T>
void forward(const OpContext& c, const SwigluForward& args) {
  constexpr int N = 16 / sizeof(T);
  const int64_t rows = c.shape(args.y).rows(), width = c.shape(args.y)[-1];
  const auto* h = cuda_pointer(c.in<T>(args.h));
  auto* y = cuda_pointer(c.out<T>(args.y));
  const float* weights = in_or_null<float>(c, args.weights);
  const int32_t *slots = in_or_null<int32_t>(c, args.slots), *count = count_pointer(c, args.offsets);
  if (packs(h, width, N, sizeof(T)) && packs(y, width, N, sizeof(T)))
    forward_kernel<N><<<piece_blocks<kDepth>(rows, width / N), kPieceThreads, 0, cuda_stream(c)>>>(
        h, weights, slots, count, y, rows, width);
  else
    forward_kernel<1><<<piece_blocks<kDepth>(rows, width), kPieceThreads, 0, cuda_stream(c)>>>(
        h, weights, slots, count, y, rows, width);
}

}  // namespace

void swiglu_forward_cuda(const OpContext& c, const SwigluForward& args) {
  with_float(c.dtype(args.h), [&](auto zero) { forward<decltype(zero)>(c, args); });
}

}  // namespace moesaic::ops
