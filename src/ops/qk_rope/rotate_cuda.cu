// The forward pass, and the backward pass without gains (which turns the other way).
#include "ops/qk_rope/qk_rope_bodies.h"
#include "ops/qk_rope/rope.cuh"

namespace moesaic::ops {
namespace {

using namespace rope;

template <class T>
struct Pointers {
  const T* x;
  const int32_t* positions;
  Gains gains;
  T* y;
  float sign, eps;
};

template <int N, int kPacks, class T>
__global__ void __launch_bounds__(kThreads)
    rotate_kernel(Pointers<T> p, Layout l, const __grid_constant__ Frequencies frequencies) {
  extern __shared__ float shared[];
  Table table(shared, l);
  float* gains = shared + l.group * l.head_dim;  // read behind the table's barrier
  p.gains.load(gains, l.head_dim);
  const double frequency = frequencies.of_pair[threadIdx.x % l.half];
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * l.group; first < l.num_rows;
       first += static_cast<int64_t>(gridDim.x) * l.group) {
    const int num_tokens = static_cast<int>(min(static_cast<int64_t>(l.group), l.num_rows - first));
    table.fill(p.positions + first, num_tokens, l, frequency, frequencies.scale);
    for (int flat = static_cast<int>(threadIdx.x); flat < num_places(num_tokens, l); flat += kThreads) {
      const Place place(flat, num_tokens, l);
      const int64_t head = (first + place.token) * l.width + place.head * l.head_dim;
      float a[kPacks][N], b[kPacks][N], squares = 0;
#pragma unroll
      for (int k = 0; k < kPacks; ++k) {
        const int pack = place.lane + k * l.lanes;
        if (!place.present || pack >= l.packs) continue;
        const auto low = load_words<N>(p.x + head + pack * N),
                   high = load_words<N>(p.x + head + l.half + pack * N);
#pragma unroll
        for (int i = 0; i < N; ++i) {
          a[k][i] = low[i];
          b[k][i] = high[i];
          squares += a[k][i] * a[k][i] + b[k][i] * b[k][i];
        }
      }
      float rstd = 1;
      if (p.gains.q != nullptr)
        rstd = 1 / sqrtf(team_sum(squares, l.lanes) / static_cast<float>(l.head_dim) + p.eps);
#pragma unroll
      for (int k = 0; k < kPacks; ++k) {
        const int pack = place.lane + k * l.lanes;
        if (!place.present || pack >= l.packs) continue;
        if (p.gains.q != nullptr) {
          const float* gain = gains + (place.head < l.num_q ? 0 : l.head_dim) + pack * N;
          float gain_a[N], gain_b[N];
          load_shared(gain, gain_a);
          load_shared(gain + l.half, gain_b);
#pragma unroll
          for (int i = 0; i < N; ++i) {
            a[k][i] *= rstd * gain_a[i];
            b[k][i] *= rstd * gain_b[i];
          }
        }
        const int entry = place.token * l.half + pack * N;
        rotate(a[k], b[k], table.cosines + entry, table.sines + entry, p.sign);
        store_words(p.y + head + pack * N, a[k]);
        store_words(p.y + head + l.half + pack * N, b[k]);
      }
    }
    if (p.y != p.x) copy_values<N>(p.x, p.y, first, num_tokens, l);
  }
}

template <int N, int kPacks, class T, class Args>
void launch(cudaStream_t stream, const Pointers<T>& p, int64_t num_rows, const Args& args) {
  const Layout l = layout(num_rows, args, N);
  const int64_t bytes = l.table_bytes() + (p.gains.q != nullptr ? 8 * args.head_dim : 0);
  rotate_kernel<N, kPacks>
      <<<num_blocks(l.num_groups()), kThreads, static_cast<size_t>(bytes), stream>>>(p, l, frequencies(args));
}

template <class T, class Args>
void turn(const OpContext& c, Handle x, Handle y, float sign, const Args& args) {
  MOESAIC_CHECK(args.head_dim <= kMaxHeadDim, "head width {} on a GPU", args.head_dim);
  constexpr int N = 16 / sizeof(T);
  const Pointers<CudaType<T>> p{.x = cuda_pointer(c.in<T>(x)),
                                .positions = c.in<int32_t>(args.positions),
                                .gains = gains(c, args),
                                .y = cuda_pointer(c.out<T>(y)),
                                .sign = sign,
                                .eps = args.eps};
  const int64_t rows = c.shape(x).rows();
  if (one_pack(p.x, args.head_dim, N, sizeof(T)) && one_pack(p.y, args.head_dim, N, sizeof(T)))
    launch<N, 1>(cuda_stream(c), p, rows, args);
  else
    launch<1, kMaxHeadDim / 2 / 32>(cuda_stream(c), p, rows, args);
}

}  // namespace

void qk_rope_forward_cuda(const OpContext& c, const QkRopeForward& args) {
  with_float(c.dtype(args.qkv), [&](auto zero) { turn<decltype(zero)>(c, args.qkv, args.out, 1, args); });
}

void rope::turn_back(const OpContext& c, const QkRopeBackward& args) {
  with_float(c.dtype(args.d_out),
             [&](auto zero) { turn<decltype(zero)>(c, args.d_out, args.d_qkv, -1, args); });
}

}  // namespace moesaic::ops
