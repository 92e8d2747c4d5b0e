#include "ops/rmsnorm/block_sums.cuh"
#include "ops/rmsnorm/rmsnorm_bodies.h"

namespace moesaic::ops {
namespace {

// As many blocks as the GPU holds at once walk the rows, and each keeps its share of dgain in registers until its end, so that
// partial sums cost little beside the rows. kCentred: LayerNorm, whose rows lose their mean first; partial sums of d_bias stand
// behind those of dgain.

template <class T, class G>
struct Pointers {
  const T *dy, *x, *add;
  const G* gain;
  const float* rstd;
  T* dx;
  float* partials;  // [blocks, width], of LayerNorm [blocks, 2, width]
  int64_t num_rows, width;
  float eps;
};

/// What a row's gradient needs from sums over the row: dx = rstd dy gain - pull (x - mean) - shift + add.
struct RowScale {
  float rstd, pull, mean, shift;  // mean and shift: of LayerNorm
};
/// dot: sum of dy gain (x - mean); sum: of dy gain.
__device__ inline RowScale row_scale(float rstd, float dot, int64_t width, float mean, float sum) {
  const auto count = static_cast<float>(width);
  return {rstd, rstd * rstd * rstd * dot / count, mean, rstd * sum / count};
}
__device__ inline float inverse_rms(float squares, int64_t width, float eps) {
  return 1 / sqrtf(squares / static_cast<float>(width) + eps);
}

template <bool kCentred, int N, class T>
__device__ float centred(const Words<T, N>& x, int i, float mean) {
  return kCentred ? x[i] - mean : x[i];
}
template <bool kCentred, int N, class T, class G>
__device__ float dot(const Words<T, N>& dy, const Words<T, N>& x, const Words<G, N>& gain, float mean) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < N; ++i) sum += dy[i] * gain[i] * centred<kCentred>(x, i, mean);
  return sum;
}
template <int N, class T, class G>
__device__ float product_sum(const Words<T, N>& dy, const Words<G, N>& gain) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < N; ++i) sum += dy[i] * gain[i];
  return sum;
}
template <bool kCentred, int N, class T>
__device__ float squares(const Words<T, N>& x, float mean) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < N; ++i) sum += centred<kCentred>(x, i, mean) * centred<kCentred>(x, i, mean);
  return sum;
}
template <int N, class T>
__device__ float total(const Words<T, N>& x) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < N; ++i) sum += x[i];
  return sum;
}

/// Parameter gradients, and sums over a row beside its squares: one of RMSNorm, two of LayerNorm.
template <bool kCentred>
constexpr int kNumSums = kCentred ? 2 : 1;

/// Writes dx and adds the row's shares of dgain, shares[0], and of d_bias, shares[1].
template <bool kCentred, int N, class T, class G>
__device__ void finish(const Words<T, N>& dy, const Words<T, N>& x, const Words<G, N>& gain, bool with_add,
                       const Words<T, N>& add, RowScale row, T* dx, float (&shares)[kNumSums<kCentred>][N]) {
  float values[N];
#pragma unroll
  for (int i = 0; i < N; ++i) {
    shares[0][i] += dy[i] * centred<kCentred>(x, i, row.mean) * row.rstd;
    values[i] = row.rstd * dy[i] * gain[i] - centred<kCentred>(x, i, row.mean) * row.pull;
    if constexpr (kCentred) {
      shares[1][i] += dy[i];
      values[i] -= row.shift;
    }
    if (with_add) values[i] += add[i];
  }
  store_words(dx, values);
}

/// kRows rows at a time, in registers: kPacks packs of N elements a thread.
template <bool kCentred, int kThreads, int kBlocks, int N, int kPacks, int kRows, class T, class G>
__global__ void __launch_bounds__(kThreads, kBlocks) rows_kernel(Pointers<T, G> p) {
  const int width = static_cast<int>(p.width), first = static_cast<int>(threadIdx.x) * N;
  constexpr int kStride = kThreads * N, kSums = kNumSums<kCentred>;
  float shares[kPacks][kSums][N] = {};
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * kRows; row < p.num_rows;
       row += static_cast<int64_t>(gridDim.x) * kRows) {
    Words<T, N> x[kRows][kPacks], dy[kRows][kPacks], add[kRows][kPacks];
    // Gains are loaded anew, from the cache: kept, they would be unpacked and take twice the registers.
    Words<G, N> gain[kPacks];
    float rstd[kRows], sums[kSums * kRows], mean[kRows] = {};
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
    if constexpr (kCentred) {
#pragma unroll
      for (int r = 0; r < kRows; ++r)
#pragma unroll
        for (int k = 0; k < kPacks; ++k)
          if (row + r < p.num_rows && first + k * kStride < width) mean[r] += total(x[r][k]);
      block_sums<kThreads>(mean);
#pragma unroll
      for (int r = 0; r < kRows; ++r) mean[r] /= static_cast<float>(p.width);
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      sums[r] = 0;
#pragma unroll
      for (int k = 0; k < kPacks; ++k)
        if (row + r < p.num_rows && first + k * kStride < width)
          sums[r] += dot<kCentred>(dy[r][k], x[r][k], gain[k], mean[r]);
    }
    if constexpr (kCentred) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        sums[kRows + r] = 0;
#pragma unroll
        for (int k = 0; k < kPacks; ++k)
          if (row + r < p.num_rows && first + k * kStride < width)
            sums[kRows + r] += product_sum(dy[r][k], gain[k]);
      }
    }
    block_sums<kThreads>(sums);
    if (p.rstd == nullptr) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        rstd[r] = 0;
#pragma unroll
        for (int k = 0; k < kPacks; ++k)
          if (row + r < p.num_rows && first + k * kStride < width)
            rstd[r] += squares<kCentred>(x[r][k], mean[r]);
      }
      block_sums<kThreads>(rstd);
#pragma unroll
      for (int r = 0; r < kRows; ++r) rstd[r] = inverse_rms(rstd[r], p.width, p.eps);
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (row + r >= p.num_rows) continue;
      const RowScale scale = row_scale(rstd[r], sums[r], p.width, mean[r], sums[(kSums - 1) * kRows + r]);
#pragma unroll
      for (int k = 0; k < kPacks; ++k)
        if (first + k * kStride < width)
          finish<kCentred>(dy[r][k], x[r][k], gain[k], p.add != nullptr, add[r][k], scale,
                           p.dx + (row + r) * p.width + first + k * kStride, shares[k]);
    }
  }
#pragma unroll
  for (int k = 0; k < kPacks; ++k)
    if (first + k * kStride < width)
#pragma unroll
      for (int s = 0; s < kSums; ++s)
#pragma unroll
        for (int i = 0; i < N; ++i)
          p.partials[(blockIdx.x * kSums + s) * p.width + first + k * kStride + i] = shares[k][s][i];
}

/// Rows of any width, which are read twice, for LayerNorm three times; the shares lie in the partial sums themselves.
template <bool kCentred, int kThreads, int N, class T, class G>
__global__ void __launch_bounds__(kThreads) wide_rows_kernel(Pointers<T, G> p) {
  constexpr int kSums = kNumSums<kCentred>;
  const int64_t first = static_cast<int64_t>(threadIdx.x) * N;
  float* partial = p.partials + blockIdx.x * kSums * p.width;
  for (int64_t at = first; at < p.width; at += kThreads * N)
    for (int s = 0; s < kSums; ++s)
      for (int i = 0; i < N; ++i) partial[s * p.width + at + i] = 0;
  for (int64_t row = blockIdx.x; row < p.num_rows; row += gridDim.x) {
    const T *x = p.x + row * p.width, *dy = p.dy + row * p.width;
    float mean[1] = {};
    if constexpr (kCentred) {
      for (int64_t at = first; at < p.width; at += kThreads * N) mean[0] += total(load_words<N>(x + at));
      block_sums<kThreads>(mean);
      mean[0] /= static_cast<float>(p.width);
    }
    float sums[1 + kSums] = {};  // dot, squares, of LayerNorm the sum
    for (int64_t at = first; at < p.width; at += kThreads * N) {
      const auto s = load_words<N>(x + at);
      const auto d = load_words<N>(dy + at);
      const auto gain = load_words<N>(p.gain + at);
      sums[0] += dot<kCentred>(d, s, gain, mean[0]);
      sums[1] += squares<kCentred>(s, mean[0]);
      if constexpr (kCentred) sums[2] += product_sum(d, gain);
    }
    block_sums<kThreads>(sums);
    const float rstd = p.rstd != nullptr ? p.rstd[row] : inverse_rms(sums[1], p.width, p.eps);
    const RowScale scale = row_scale(rstd, sums[0], p.width, mean[0], sums[kSums]);
    for (int64_t at = first; at < p.width; at += kThreads * N) {
      float shares[kSums][N];
      Words<T, N> add;
      if (p.add != nullptr) add = load_words<N>(p.add + row * p.width + at);
#pragma unroll
      for (int s = 0; s < kSums; ++s)
#pragma unroll
        for (int i = 0; i < N; ++i) shares[s][i] = partial[s * p.width + at + i];
      finish<kCentred>(load_words<N>(dy + at), load_words<N>(x + at), load_words<N>(p.gain + at),
                       p.add != nullptr, add, scale, p.dx + row * p.width + at, shares);
#pragma unroll
      for (int s = 0; s < kSums; ++s)
#pragma unroll
        for (int i = 0; i < N; ++i) partial[s * p.width + at + i] = shares[s][i];
    }
  }
}

template <bool kCentred, int N, class T, class G>
void launch(cudaStream_t stream, const Pointers<T, G>& p, int64_t num_blocks) {
  // Threads of a multiprocessor: what registers allow. BF16 has room for two rows at a time, without a second share.
  constexpr int kResident = N == 8 ? 1024 : 512, kRows = N == 8 && !kCentred ? 2 : 1;
  const auto blocks = static_cast<unsigned>(num_blocks);
  const auto aligned = [&](const auto* tensor) { return packs(tensor, p.width, N, sizeof *tensor); };
  if (!aligned(p.dy) || !aligned(p.x) || !aligned(p.add) || !aligned(p.gain) || !aligned(p.dx))
    wide_rows_kernel<kCentred, 256, 1><<<blocks, 256, 0, stream>>>(p);
  else if (p.width <= 1024)
    rows_kernel<kCentred, 128, kResident / 128, N, 8 / N, kRows><<<blocks, 128, 0, stream>>>(p);
  else if (p.width <= 2048)
    rows_kernel<kCentred, 256, kResident / 256, N, 8 / N, kRows><<<blocks, 256, 0, stream>>>(p);
  else if (p.width <= 4096)
    rows_kernel<kCentred, 512, kResident / 512, N, 8 / N, kRows><<<blocks, 512, 0, stream>>>(p);
  else if (p.width <= 8192)
    rows_kernel<kCentred, 512, 1, N, 16 / N, kRows><<<blocks, 512, 0, stream>>>(p);
  else
    wide_rows_kernel<kCentred, 512, N><<<blocks, 512, 0, stream>>>(p);
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
  const cudaStream_t stream = cuda_stream(c);
  const int64_t blocks = rmsnorm_backward_blocks(p.num_rows, p.width);
  float *dgain = c.inout<float>(args.dgain), *d_bias = inout_or_null<float>(c, args.d_bias);
  if (d_bias != nullptr)
    launch<true, N>(stream, p, blocks);
  else
    launch<false, N>(stream, p, blocks);
  add_column_sums(stream, p.partials, blocks, (d_bias != nullptr ? 2 : 1) * p.width,
                  {dgain, d_bias, p.width});
}

}  // namespace

void rmsnorm_backward_cuda(const OpContext& c, const RmsNormBackward& args) {
  with_float(c.dtype(args.x), [&](auto x_zero) {
    with_float(c.dtype(args.gain),
               [&](auto g_zero) { backward<decltype(x_zero), decltype(g_zero)>(c, args); });
  });
}

}  // namespace moesaic::ops
