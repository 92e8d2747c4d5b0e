// The backward pass with gains.
#include "ops/qk_rope/qk_rope_bodies.h"
#include "ops/qk_rope/rope.cuh"
#include "ops/rmsnorm/block_sums.cuh"

namespace moesaic::ops {
namespace {

using namespace rope;

template <class T>
struct Pointers {
  const T *d_out, *qkv;
  const int32_t* positions;
  Gains gains;
  T* d_qkv;
  float* partials;  // [blocks, 2, A]: of the gains of queries and of keys
  float eps;
};

/// Shares of the gains' gradients: a lane's columns of its team's heads, of queries and of keys.
template <int N, int kPacks>
struct Shares {
  float values[2][kPacks][2][N] = {};

  /// Adds up the teams of each warp in `sums` [warps, 2, A], and the warps in order.
  __device__ void store(float* sums, float* partial, const Layout& l) {
    const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
#pragma unroll
    for (int kind = 0; kind < 2; ++kind)
#pragma unroll
      for (int k = 0; k < kPacks; ++k)
#pragma unroll
        for (int part = 0; part < 2; ++part)
#pragma unroll
          for (int i = 0; i < N; ++i) {
            float value = values[kind][k][part][i];
            for (int other = 16; other >= l.lanes; other /= 2)
              value += __shfl_xor_sync(0xffffffffu, value, other);
            const int pack = lane + k * l.lanes;
            if (lane < l.lanes && pack < l.packs)
              sums[(warp * 2 + kind) * l.head_dim + part * l.half + pack * N + i] = value;
          }
    __syncthreads();
    for (int column = static_cast<int>(threadIdx.x); column < 2 * l.head_dim; column += kThreads) {
      float total = 0;
      for (int w = 0; w < kThreads / 32; ++w) total += sums[w * 2 * l.head_dim + column];
      partial[column] = total;
    }
  }
};

template <int N, int kPacks, class T>
__global__ void __launch_bounds__(kThreads, 2)
    backward_kernel(Pointers<T> p, Layout l, const __grid_constant__ Frequencies frequencies) {
  extern __shared__ float shared[];
  Table table(shared, l);
  float* gains = shared + l.group * l.head_dim;  // read behind the table's barrier
  p.gains.load(gains, l.head_dim);
  const double frequency = frequencies.of_pair[threadIdx.x % l.half];
  Shares<N, kPacks> shares;
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * l.group; first < l.num_rows;
       first += static_cast<int64_t>(gridDim.x) * l.group) {
    const int num_tokens = static_cast<int>(min(static_cast<int64_t>(l.group), l.num_rows - first));
    table.fill(p.positions + first, num_tokens, l, frequency, frequencies.scale);
    for (int flat = static_cast<int>(threadIdx.x); flat < num_places(num_tokens, l); flat += kThreads) {
      const Place place(flat, num_tokens, l);
      const bool is_key = place.head >= l.num_q;
      const int64_t head = (first + place.token) * l.width + place.head * l.head_dim;
      const float* gain = gains + (is_key ? l.head_dim : 0);
      Words<T, N> x[kPacks][2];
      float d[kPacks][2][N], squares = 0, dot = 0;
#pragma unroll
      for (int k = 0; k < kPacks; ++k) {
        const int pack = place.lane + k * l.lanes;
        if (!place.present || pack >= l.packs) continue;
#pragma unroll
        for (int part = 0; part < 2; ++part) {
          const int64_t at = head + part * l.half + pack * N;
          const auto words = load_words<N>(p.d_out + at);
          x[k][part] = load_words<N>(p.qkv + at);
#pragma unroll
          for (int i = 0; i < N; ++i) d[k][part][i] = words[i];
        }
        const int entry = place.token * l.half + pack * N;
        rotate(d[k][0], d[k][1], table.cosines + entry, table.sines + entry, -1);
#pragma unroll
        for (int part = 0; part < 2; ++part) {
          float g[N];
          load_shared(gain + part * l.half + pack * N, g);
#pragma unroll
          for (int i = 0; i < N; ++i) {
            const float s = x[k][part][i];
            squares += s * s;
            dot += d[k][part][i] * g[i] * s;
          }
        }
      }
      squares = team_sum(squares, l.lanes);
      dot = team_sum(dot, l.lanes);
      const float rstd = 1 / sqrtf(squares / static_cast<float>(l.head_dim) + p.eps);
      const float pull = rstd * rstd * rstd * dot / static_cast<float>(l.head_dim);
#pragma unroll
      for (int k = 0; k < kPacks; ++k) {
        const int pack = place.lane + k * l.lanes;
        if (!place.present || pack >= l.packs) continue;
#pragma unroll
        for (int part = 0; part < 2; ++part) {
          float g[N];
          load_shared(gain + part * l.half + pack * N, g);
#pragma unroll
          for (int i = 0; i < N; ++i) {
            const float s = x[k][part][i], share = d[k][part][i] * s * rstd;
            shares.values[0][k][part][i] += is_key ? 0 : share;
            shares.values[1][k][part][i] += is_key ? share : 0;
            d[k][part][i] = rstd * d[k][part][i] * g[i] - s * pull;
          }
          store_words(p.d_qkv + head + part * l.half + pack * N, d[k][part]);
        }
      }
    }
    if (p.d_qkv != p.d_out) copy_values<N>(p.d_out, p.d_qkv, first, num_tokens, l);
  }
  shares.store(gains + 2 * l.head_dim, p.partials + static_cast<int64_t>(blockIdx.x) * 2 * l.head_dim, l);
}

template <int N, int kPacks, class T>
void launch(cudaStream_t stream, const Pointers<T>& p, int64_t blocks, int64_t num_rows,
            const QkRopeBackward& args) {
  const Layout l = layout(num_rows, args, N);
  const int64_t bytes = l.table_bytes() + 4 * (2 + kThreads / 32 * 2) * args.head_dim;
  backward_kernel<N, kPacks><<<static_cast<unsigned>(blocks), kThreads, static_cast<size_t>(bytes), stream>>>(
      p, l, frequencies(args));
}

template <class T>
void backward(const OpContext& c, const QkRopeBackward& args) {
  MOESAIC_CHECK(args.head_dim <= kMaxHeadDim, "head width {} on a GPU", args.head_dim);
  constexpr int N = 16 / sizeof(T);
  const int64_t rows = c.shape(args.d_out).rows(), blocks = qk_rope_backward_blocks(rows);
  if (rows == 0) return;
  const Pointers<CudaType<T>> p{.d_out = cuda_pointer(c.in<T>(args.d_out)),
                                .qkv = cuda_pointer(c.in<T>(args.qkv)),
                                .positions = c.in<int32_t>(args.positions),
                                .gains = gains(c, args),
                                .d_qkv = cuda_pointer(c.out<T>(args.d_qkv)),
                                .partials = reinterpret_cast<float*>(c.out<uint8_t>(args.scratch)),
                                .eps = args.eps};
  const auto fits = [&](const void* tensor) { return one_pack(tensor, args.head_dim, N, sizeof(T)); };
  if (fits(p.d_out) && fits(p.qkv) && fits(p.d_qkv))
    launch<N, 1>(cuda_stream(c), p, blocks, rows, args);
  else
    launch<1, kMaxHeadDim / 2 / 32>(cuda_stream(c), p, blocks, rows, args);
  add_column_sums(cuda_stream(c), p.partials, blocks, 2 * args.head_dim,
                  {c.inout<float>(args.d_gain_q), c.inout<float>(args.d_gain_k), args.head_dim});
}

}  // namespace

void qk_rope_backward_cuda(const OpContext& c, const QkRopeBackward& args) {
  if (!args.gain_q) return rope::turn_back(c, args);
  with_float(c.dtype(args.d_out), [&](auto zero) { backward<decltype(zero)>(c, args); });
}

}  // namespace moesaic::ops
