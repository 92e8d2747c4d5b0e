#include "ops/rmsnorm/block_sums.cuh"
#include "ops/rmsnorm/rmsnorm_bodies.h"

namespace moesaic::ops {
namespace {

// As many blocks as the GPU holds at once walk the rows, and each keeps its share of dgain in registers until its end, so that
// partial sums cost little beside the rows.

template <class T, class G>
struct Pointers {
  const T *dy, *x, *add;
  const G* gain;
  const float* rstd;
  T* dx;
  float* partials;  // [blocks, width]
  int64_t num_rows, width;
  float eps;
};

/// What a row's gradient needs from sums over the row: dx = scale dy gain - pull s + add.
struct RowScale {
  float rstd, pull;
};
__device__ inline RowScale row_scale(float rstd, float dot, int64_t width) {
  return {rstd, rstd * rstd * rstd * dot / static_cast<float>(width)};
}
__device__ inline float inverse_rms(float squares, int64_t width, float eps) {
  return 1 / sqrtf(squares / static_cast<float>(width) + eps);
}

template <int N, class T, class G>
__device__ float dot(const Words<T, N>& dy, const Words<T, N>& x, const Words<G, N>& gain) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < N; ++i) sum += dy[i] * gain[i] * x[i];
  return sum;
}
template <int N, class T>
__device__ float squares(const Words<T, N>& x) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < N; ++i) sum += x[i] * x[i];
  return sum;
}

/// Writes dx and adds the row's share of dgain.
template <int N, class T, class G>
__device__ void finish(const Words<T, N>& dy, const Words<T, N>& x, const Words<G, N>& gain, bool with_add,
                       const Words<T, N>& add, RowScale row, T* dx, float (&dgain)[N]) {
  float values[N];
#pragma unroll
  for (int i = 0; i < N; ++i) {
    dgain[i] += dy[i] * x[i] * row.rstd;
    values[i] = row.rstd * dy[i] * gain[i] - x[i] * row.pull;
    if (with_add) values[i] += add[i];
  }
  store_words(dx, values);
}

/// kRows rows at a time, in registers: kPacks packs of N elements a thread.
template <int kThreads, int kBlocks, int N, int kPacks, int kRows, class T, class G>
__global__ void __launch_bounds__(kThreads, kBlocks) rows_kernel(Pointers<T, G> p) {
  const int width = static_cast<int>(p.width), first = static_cast<int>(threadIdx.x) * N;
  constexpr int kStride = kThreads * N;
  float dgain[kPacks][N] = {};
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * kRows; row < p.num_rows;
       row += static_cast<int64_t>(gridDim.x) * kRows) {
    Words<T, N> x[kRows][kPacks], dy[kRows][kPacks], add[kRows][kPacks];
    // Gains are loaded anew, from the cache: kept, they would be unpacked and take twice the registers.
    Words<G, N> gain[kPacks];
    float rstd[kRows], dots[kRows];
#pragma unroll
    for (int k = 0; k < kPacks; ++k)
      if (first + k * kStride < width) gain[k] = load_words<N>(p.gain + first + k * kStride);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (row + r >= p.num_rows) continue;
      const int64_t at = (row + r) * p.width + first;
#pragma unroll
      for (int k = 0; k < kPacks; ++k) {
        if (first + k * kStride >= width) continue;
        x[r][k] = load_words<N>(p.x + at + k * kStride);
        dy[r][k] = load_words<N>(p.dy + at + k * kStride);
        if (p.add != nullptr) add[r][k] = load_words<N>(p.add + at + k * kStride);
      }
      if (p.rstd != nullptr) rstd[r] = p.rstd[row + r];
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      dots[r] = 0;
#pragma unroll
      for (int k = 0; k < kPacks; ++k)
        if (row + r < p.num_rows && first + k * kStride < width) dots[r] += dot(dy[r][k], x[r][k], gain[k]);
    }
    block_sums<kThreads>(dots);
    if (p.rstd == nullptr) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        rstd[r] = 0;
#pragma unroll
        for (int k = 0; k < kPacks; ++k)
          if (row + r < p.num_rows && first + k * kStride < width) rstd[r] += squares(x[r][k]);
      }
      block_sums<kThreads>(rstd);
#pragma unroll
      for (int r = 0; r < kRows; ++r) rstd[r] = inverse_rms(rstd[r], p.width, p.eps);
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (row + r >= p.num_rows) continue;
      const RowScale scale = row_scale(rstd[r], dots[r], p.width);
#pragma unroll
      for (int k = 0; k < kPacks; ++k)
        if (first + k * kStride < width)
          finish(dy[r][k], x[r][k], gain[k], p.add != nullptr, add[r][k], scale,
                 p.dx + (row + r) * p.width + first + k * kStride, dgain[k]);
    }
  }
#pragma unroll
  for (int k = 0; k < kPacks; ++k)
    if (first + k * kStride < width)
#pragma unroll
      for (int i = 0; i < N; ++i) p.partials[blockIdx.x * p.width + first + k * kStride + i] = dgain[k][i];
}

/// Rows of any width, which are read twice; the share of dgain lies in the partial sums themselves.
template <int kThreads, int N, class T, class G>
__global__ void __launch_bounds__(kThreads) wide_rows_kernel(Pointers<T, G> p) {
  const int64_t first = static_cast<int64_t>(threadIdx.x) * N;
  float* partial = p.partials + blockIdx.x * p.width;
  for (int64_t at = first; at < p.width; at += kThreads * N)
    for (int i = 0; i < N; ++i) partial[at + i] = 0;
  for (int64_t row = blockIdx.x; row < p.num_rows; row += gridDim.x) {
    const T *x = p.x + row * p.width, *dy = p.dy + row * p.width;
    float sums[2] = {};
    for (int64_t at = first; at < p.width; at += kThreads * N) {
      const auto s = load_words<N>(x + at);
      sums[0] += dot(load_words<N>(dy + at), s, load_words<N>(p.gain + at));
      sums[1] += squares(s);
    }
    block_sums<kThreads>(sums);
    const float rstd = p.rstd != nullptr ? p.rstd[row] : inverse_rms(sums[1], p.width, p.eps);
    const RowScale scale = row_scale(rstd, sums[0], p.width);
    for (int64_t at = first; at < p.width; at += kThreads * N) {
      float dgain[N];
      Words<T, N> add;
      if (p.add != nullptr) add = load_words<N>(p.add + row * p.width + at);
#pragma unroll
      for (int i = 0; i < N; ++i) dgain[i] = partial[at + i];
      finish(load_words<N>(dy + at), load_words<N>(x + at), load_words<N>(p.gain + at), p.add != nullptr, add,
             scale, p.dx + row * p.width + at, dgain);
#pragma unroll
      for (int i = 0; i < N; ++i) partial[at + i] = dgain[i];
    }
  }
}

template <class T, class G>
void backward(const OpContext& c, const RmsNormBackward& args) {
  const Pointers<CudaType<T>, CudaType<G>> p{
      .dy = cuda_pointer(c.in<T>(args.dy)),
      .x = cuda_pointer(c.in<T>(args.x)),
      .add = cuda_pointer(in_or_null<T>(c, args.add)),
      .gain = cuda_pointer(c.in<G>(args.gain)),
      .rstd = in_or_null<float>(c, args.rstd),
      .dx = cuda_pointer(c.out<T>(args.dx)),
      .partials = reinterpret_cast<float*>(out_or_null<uint8_t>(c, args.scratch)),
      .num_rows = c.shape(args.x).rows(),
      .width = c.shape(args.x)[-1],
      .eps = args.eps};
  if (p.num_rows == 0) return;
  constexpr int N = 16 / std::max(sizeof(T), sizeof(G));
  // Threads of a multiprocessor: what registers allow. BF16 has room for two rows at a time.
  constexpr int kResident = N == 8 ? 1024 : 512, kRows = N == 8 ? 2 : 1;
  const cudaStream_t stream = cuda_stream(c);
  const auto blocks = static_cast<unsigned>(rmsnorm_backward_blocks(p.num_rows, p.width));
  const auto aligned = [&](const auto* tensor) { return packs(tensor, p.width, N, sizeof *tensor); };
  if (!aligned(p.dy) || !aligned(p.x) || !aligned(p.add) || !aligned(p.gain) || !aligned(p.dx))
    wide_rows_kernel<256, 1><<<blocks, 256, 0, stream>>>(p);
  else if (p.width <= 1024)
    rows_kernel<128, kResident / 128, N, 8 / N, kRows><<<blocks, 128, 0, stream>>>(p);
  else if (p.width <= 2048)
    rows_kernel<256, kResident / 256, N, 8 / N, kRows><<<blocks, 256, 0, stream>>>(p);
  else if (p.width <= 4096)
    rows_kernel<512, kResident / 512, N, 8 / N, kRows><<<blocks, 512, 0, stream>>>(p);
  else if (p.width <= 8192)
    rows_kernel<512, 1, N, 16 / N, kRows><<<blocks, 512, 0, stream>>>(p);
  else
    wide_rows_kernel<512, N><<<blocks, 512, 0, stream>>>(p);
  add_column_sums(stream, p.partials, blocks, p.width, {c.inout<float>(args.dgain), nullptr, p.width});
}

}  // namespace

void rmsnorm_backward_cuda(const OpContext& c, const RmsNormBackward& args) {
  with_float(c.dtype(args.x), [&](auto x_zero) {
    with_float(c.dtype(args.gain),
               [&](auto g_zero) { backward<decltype(x_zero), decltype(g_zero)>(c, args); });
  });
}

}  // namespace moesaic::ops
