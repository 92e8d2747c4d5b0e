#include "ops/rmsnorm/block_sums.cuh"
#include "ops/rmsnorm/rmsnorm_bodies.h"

namespace moesaic::ops {
namespace {

template <class T, class G>
struct Pointers {
  const T *x, *residual;
  const G* gain;
  T *sum, *y;
  float* rstd;
  int64_t num_rows, width;
  float eps;
  const G* bias;  // null for RMSNorm
};

/// s = x + residual, rounded as it is stored.
template <int N, class T>
__device__ void add_residual(float (&s)[N], const Words<T, N>& residual) {
#pragma unroll
  for (int i = 0; i < N; ++i) s[i] = to_float(from_float<T>(s[i] + residual[i]));
}

template <int N, class T>
__device__ void unpack(float (&s)[N], const Words<T, N>& x) {
#pragma unroll
  for (int i = 0; i < N; ++i) s[i] = x[i];
}

template <int N>
__device__ float total(const float (&s)[N]) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < N; ++i) sum += s[i];
  return sum;
}

template <int N>
__device__ void subtract(float (&s)[N], float mean) {
#pragma unroll
  for (int i = 0; i < N; ++i) s[i] -= mean;
}

template <int N>
__device__ float squares(const float (&s)[N]) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < N; ++i) sum += s[i] * s[i];
  return sum;
}

/// Column `at` of the gains and, when kCentred, of the biases belongs to s[0].
template <bool kCentred, int N, class T, class G>
__device__ void store_normalised(T* y, float (&s)[N], float rstd, const Pointers<T, G>& p, int64_t at) {
  const auto g = load_words<N>(p.gain + at);
#pragma unroll
  for (int i = 0; i < N; ++i) s[i] = s[i] * rstd * g[i];
  if constexpr (kCentred) {
    const auto b = load_words<N>(p.bias + at);
#pragma unroll
    for (int i = 0; i < N; ++i) s[i] += b[i];
  }
  store_words(y, s);
}

template <int kThreads, class T, class G>
__device__ float finish_rstd(const Pointers<T, G>& p, float sum) {
  const float rstd = 1 / sqrtf(block_sum<kThreads>(sum) / static_cast<float>(p.width) + p.eps);
  if (p.rstd != nullptr && threadIdx.x == 0) p.rstd[blockIdx.x] = rstd;
  return rstd;
}

/// A block a row, which it keeps in registers: kPacks packs of N elements a thread. kCentred: LayerNorm.
template <bool kCentred, int kThreads, int N, int kPacks, class T, class G>
__global__ void __launch_bounds__(kThreads) row_kernel(Pointers<T, G> p) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * p.width;
  const int width = static_cast<int>(p.width), first = static_cast<int>(threadIdx.x) * N;
  constexpr int kStride = kThreads * N;
  Words<T, N> x[kPacks], residual[kPacks];
#pragma unroll
  for (int k = 0; k < kPacks; ++k)
    if (first + k * kStride < width) x[k] = load_words<N>(p.x + row + first + k * kStride);
  if (p.residual != nullptr)
#pragma unroll
    for (int k = 0; k < kPacks; ++k)
      if (first + k * kStride < width) residual[k] = load_words<N>(p.residual + row + first + k * kStride);
  float s[kPacks][N], sum = 0;
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    if (first + k * kStride >= width) continue;
    unpack(s[k], x[k]);
    if (p.residual != nullptr) add_residual(s[k], residual[k]);
    if (p.sum != nullptr) store_words(p.sum + row + first + k * kStride, s[k]);
    sum += kCentred ? total(s[k]) : squares(s[k]);
  }
  if constexpr (kCentred) {
    const float mean = block_sum<kThreads>(sum) / static_cast<float>(p.width);
    sum = 0;
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      if (first + k * kStride >= width) continue;
      subtract(s[k], mean);
      sum += squares(s[k]);
    }
  }
  const float rstd = finish_rstd<kThreads>(p, sum);
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    const int at = first + k * kStride;
    if (at >= width) continue;
    store_normalised<kCentred>(p.y + row + at, s[k], rstd, p, at);
  }
}

/// A block a row of any width, which it reads twice, for LayerNorm three times.
template <bool kCentred, int kThreads, int N, class T, class G>
__global__ void __launch_bounds__(kThreads) wide_row_kernel(Pointers<T, G> p) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * p.width;
  const int64_t first = static_cast<int64_t>(threadIdx.x) * N;
  float sum = 0;
  for (int64_t at = first; at < p.width; at += kThreads * N) {
    float s[N];
    unpack(s, load_words<N>(p.x + row + at));
    if (p.residual != nullptr) add_residual(s, load_words<N>(p.residual + row + at));
    if (p.sum != nullptr) store_words(p.sum + row + at, s);
    sum += kCentred ? total(s) : squares(s);
  }
  // Each thread reads what it wrote itself. Without `sum` there is no residual.
  const T* from = p.sum != nullptr ? p.sum : p.x;
  float mean = 0;
  if constexpr (kCentred) {
    mean = block_sum<kThreads>(sum) / static_cast<float>(p.width);
    sum = 0;
    for (int64_t at = first; at < p.width; at += kThreads * N) {
      float s[N];
      unpack(s, load_words<N>(from + row + at));
      subtract(s, mean);
      sum += squares(s);
    }
  }
  const float rstd = finish_rstd<kThreads>(p, sum);
  for (int64_t at = first; at < p.width; at += kThreads * N) {
    float s[N];
    unpack(s, load_words<N>(from + row + at));
    if constexpr (kCentred) subtract(s, mean);
    store_normalised<kCentred>(p.y + row + at, s, rstd, p, at);
  }
}

template <bool kCentred, int kThreads, int N, int kPacks, class T, class G>
bool launch_row(cudaStream_t stream, const Pointers<T, G>& p) {
  if (p.width > kThreads * N * kPacks) return false;
  row_kernel<kCentred, kThreads, N, kPacks><<<static_cast<unsigned>(p.num_rows), kThreads, 0, stream>>>(p);
  return true;
}

template <bool kCentred, int N, class T, class G>
void launch(cudaStream_t stream, const Pointers<T, G>& p) {
  const auto aligned = [&](const auto* tensor) { return packs(tensor, p.width, N, sizeof *tensor); };
  if (!aligned(p.x) || !aligned(p.residual) || !aligned(p.gain) || !aligned(p.bias) || !aligned(p.sum) ||
      !aligned(p.y))
    wide_row_kernel<kCentred, 256, 1><<<static_cast<unsigned>(p.num_rows), 256, 0, stream>>>(p);
  else if (!launch_row<kCentred, 128, N, 8 / N>(stream, p) &&
           !launch_row<kCentred, 128, N, 16 / N>(stream, p) &&
           !launch_row<kCentred, 128, N, 32 / N>(stream, p) &&
           !launch_row<kCentred, 256, N, 32 / N>(stream, p))
    wide_row_kernel<kCentred, 512, N><<<static_cast<unsigned>(p.num_rows), 512, 0, stream>>>(p);
}

template <class T, class G>
void forward(const OpContext& c, const RmsNormForward& args) {
  constexpr int N = 16 / std::max(sizeof(T), sizeof(G));
  const Pointers<CudaType<T>, CudaType<G>> p{.x = cuda_pointer(c.in<T>(args.x)),
                                             .residual = cuda_pointer(in_or_null<T>(c, args.residual)),
                                             .gain = cuda_pointer(c.in<G>(args.gain)),
                                             .sum = cuda_pointer(out_or_null<T>(c, args.sum)),
                                             .y = cuda_pointer(c.out<T>(args.y)),
                                             .rstd = out_or_null<float>(c, args.rstd),
                                             .num_rows = c.shape(args.x).rows(),
                                             .width = c.shape(args.x)[-1],
                                             .eps = args.eps,
                                             .bias = cuda_pointer(in_or_null<G>(c, args.bias))};
  if (p.num_rows == 0) return;
  if (p.bias != nullptr)
    launch<true, N>(cuda_stream(c), p);
  else
    launch<false, N>(cuda_stream(c), p);
}

}  // namespace

void rmsnorm_forward_cuda(const OpContext& c, const RmsNormForward& args) {
  with_float(c.dtype(args.x), [&](auto x_zero) {
    with_float(c.dtype(args.gain),
               [&](auto g_zero) { forward<decltype(x_zero), decltype(g_zero)>(c, args); });
  });
}

}  // namespace moesaic::ops
