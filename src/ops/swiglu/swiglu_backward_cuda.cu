#include "ops/rows/words.cuh"
#include "ops/swiglu/sigmoid.cuh"
#include "ops/swiglu/swiglu_bodies.h"

namespace moesaic::ops {
namespace {

// A block a row: the sum of d_weights needs the whole row, and blocks are small, so that narrow rows fill them too.
constexpr int kThreads = 128, kBlocks = 8;

template <class T>
struct Pointers {
  const T *dy, *h;
  const float* weights;
  const int32_t *slots, *count;
  T *dh, *y;
  float* d_weights;
  int64_t num_rows, width;
};

template <int N, class T>
__global__ void __launch_bounds__(kThreads, kBlocks) backward_kernel(Pointers<T> p) {
  const int64_t rows = num_rows(p.count, p.num_rows), row_packs = p.width / N;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const T *dy = p.dy + row * p.width, *a = p.h + row * 2 * p.width, *b = a + p.width;
    T *da = p.dh + row * 2 * p.width, *db = da + p.width;
    const int32_t slot = p.weights == nullptr ? 0 : p.slots[row];
    const float weight = p.weights == nullptr ? 1 : p.weights[slot];
    float dot = 0;
    for (int64_t pack = threadIdx.x; pack < row_packs; pack += kThreads) {
      const auto dy_pack = load_words<N>(dy + pack * N);
      const auto a_pack = load_words<N>(a + pack * N), b_pack = load_words<N>(b + pack * N);
      float da_values[N], db_values[N], y_values[N];
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float d = dy_pack[i] * weight, x = a_pack[i], gate = b_pack[i];
        const float s = sigmoid(x), silu = x * s, unweighted = silu * gate;
        dot += dy_pack[i] * unweighted;
        da_values[i] = d * gate * (s + silu * (1 - s));
        db_values[i] = d * silu;
        y_values[i] = unweighted * weight;
      }
      store_words(da + pack * N, da_values);
      store_words(db + pack * N, db_values);
      if (p.y != nullptr) store_words(p.y + row * p.width + pack * N, y_values);
    }
    if (p.d_weights != nullptr) {
      dot = block_sum<kThreads>(dot);
      if (threadIdx.x == 0) p.d_weights[slot] = dot;
    }
  }
}

template <class T>
void backward(const OpContext& c, const SwigluBackward& args) {
  constexpr int N = 16 / sizeof(T);
  const Pointers<CudaType<T>> p{.dy = cuda_pointer(c.in<T>(args.dy)),
                                .h = cuda_pointer(c.in<T>(args.h)),
                                .weights = in_or_null<float>(c, args.weights),
                                .slots = in_or_null<int32_t>(c, args.slots),
                                .count = count_pointer(c, args.offsets),
                                .dh = cuda_pointer(c.out<T>(args.dh)),
                                .y = cuda_pointer(out_or_null<T>(c, args.y)),
                                .d_weights = out_or_null<float>(c, args.d_weights),
                                .num_rows = c.shape(args.dy).rows(),
                                .width = c.shape(args.dy)[-1]};
  if (p.d_weights != nullptr)
    cudaMemsetAsync(p.d_weights, 0, static_cast<size_t>(c.shape(args.d_weights).numel() * 4), cuda_stream(c));
  const bool aligned = packs(p.dy, p.width, N, sizeof(T)) && packs(p.h, p.width, N, sizeof(T)) &&
                       packs(p.dh, p.width, N, sizeof(T)) && packs(p.y, p.width, N, sizeof(T));
  // Several rounds of blocks, so that those which finish early make room.
  const unsigned blocks = num_blocks(p.num_rows, 132 * kBlocks * 4);
  if (aligned)
    backward_kernel<N><<<blocks, kThreads, 0, cuda_stream(c)>>>(p);
  else
    backward_kernel<1><<<blocks, kThreads, 0, cuda_stream(c)>>>(p);
}

}  // namespace

void swiglu_backward_cuda(const OpContext& c, const SwigluBackward& args) {
  with_float(c.dtype(args.h), [&](auto zero) { backward<decltype(zero)>(c, args); });
}

}  // namespace moesaic::ops
