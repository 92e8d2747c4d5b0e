#include "ops/attention/tiles.cuh"

namespace moesaic::ops::attention {
namespace {

constexpr int kKeys = 64;  // of a step

template <int kA>
constexpr int kForwardBytes = (kRows + 4 * kKeys) * kPitch<kA> * 2;

/// Running softmax of a thread's two rows (l/4 and l/4 + 8 of its warp): the largest score so far, and of this thread's
/// columns the sum of exponentials relative to it. Scores are multiplied with `scale` first.
struct Running {
  float largest[2] = {-1e30f, -1e30f};  // finite: minus infinity, a hidden score, minus this is no NaN
  float sum[2] = {0, 0};

  /// scores -> their exponentials; rescale: what earlier sums must be multiplied with.
  __device__ void add(float (&scores)[kKeys / 8][4], float scale, float (&rescale)[2]) {
    const float factor = scale * kLog2e;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float now = largest[half];
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n)
        now = fmaxf(now, fmaxf(scores[n][2 * half], scores[n][2 * half + 1]));
      now = fmaxf(now, __shfl_xor_sync(0xffffffffu, now, 1));
      now = fmaxf(now, __shfl_xor_sync(0xffffffffu, now, 2));
      rescale[half] = exp2f((largest[half] - now) * factor);
      largest[half] = now;
      sum[half] *= rescale[half];
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) {
          scores[n][e] = exp2f(scores[n][e] * factor - now * factor);
          sum[half] += scores[n][e];
        }
    }
  }
  /// The whole rows' sums.
  __device__ void finish() {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      sum[half] += __shfl_xor_sync(0xffffffffu, sum[half], 1);
      sum[half] += __shfl_xor_sync(0xffffffffu, sum[half], 2);
    }
  }
};

/// A block: kRows queries of one head, over the keys that any of them sees; the next keys and values are on their way
/// while these are used. Late queries see most keys, so they start first.
template <int kA>
__global__ void __launch_bounds__(kThreads, 1)
    forward_kernel(Problem p, ForwardTensors<Bf16> t, float scale, bool aligned) {
  extern __shared__ __align__(16) unsigned char memory[];
  Bf16* queries = reinterpret_cast<Bf16*>(memory);
  Bf16* keys = queries + kRows * kPitch<kA>;     // [2][kKeys]
  Bf16* values = keys + 2 * kKeys * kPitch<kA>;  // [2][kKeys]
  const int S = p.S, A = p.A, h = blockIdx.y, group = h / (p.H / p.G);
  const int64_t b = blockIdx.z, row = p.row();
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kRows;
  const Bf16* sequence = t.qkv + b * S * row;
  const Head q{sequence + int64_t{h} * A, row}, k{sequence + int64_t{p.H + group} * A, row},
      v{sequence + int64_t{p.H + p.G + group} * A, row};
  const int32_t* doc_start = p.doc_start ? p.doc_start + b * S : nullptr;

  const int warp_first = first + threadIdx.x / 32 * 16, lane = threadIdx.x % 32;
  const int mine[2] = {warp_first + lane / 4, warp_first + lane / 4 + 8};
  int first_key[2] = {0, 0}, least = 0;
  if (doc_start) {
    const int r = first + threadIdx.x;
    least = block_min(threadIdx.x < kRows && r < S ? doc_start[r] : INT_MAX);
    for (int half = 0; half < 2; ++half)
      if (mine[half] < S) first_key[half] = doc_start[mine[half]];
  }
  const int begin = least / kKeys, end = (min(first + kRows, S) - 1) / kKeys + 1;

  const auto start = [&](int block, int place) {
    start_tile<kKeys, kA>(keys + place * kKeys * kPitch<kA>, k, block * kKeys, S, A, aligned);
    start_tile<kKeys, kA>(values + place * kKeys * kPitch<kA>, v, block * kKeys, S, A, aligned);
  };
  start_tile<kRows, kA>(queries, q, first, S, A, aligned);
  start(begin, 0);
  close_copies();
  float out[kA / 8][4];
  clear(out);
  Running running;
  for (int block = begin; block < end; ++block) {
    const int place = (block - begin) % 2;
    if (block + 1 < end) start(block + 1, 1 - place);
    close_copies();
    wait_copies<1>();
    __syncthreads();
    if (block * kKeys < warp_first + 16) {  // else no query of this warp sees them
      float scores[kKeys / 8][4], rescale[2];
      clear(scores);
      multiply_rows<kA, kKeys>(scores, queries + threadIdx.x / 32 * 16 * kPitch<kA>,
                               keys + place * kKeys * kPitch<kA>);
      if (block * kKeys + kKeys - 1 > warp_first || block * kKeys < max(first_key[0], first_key[1])) {
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const int key = block * kKeys + n * 8 + lane % 4 * 2 + e % 2;
            if (key > mine[e / 2] || key < first_key[e / 2]) scores[n][e] = -INFINITY;
          }
      }
      running.add(scores, scale, rescale);
#pragma unroll
      for (int n = 0; n < kA / 8; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) out[n][e] *= rescale[e / 2];
      multiply<kA, kA, kKeys>(out, scores, values + place * kKeys * kPitch<kA>);
    }
    __syncthreads();  // the next round but one writes where these lie
  }
  running.finish();
  const float factor[2] = {1 / running.sum[0], 1 / running.sum[1]};
  store_rows<kA>(out, factor, t.o + (b * S * p.H + h) * A, int64_t{p.H} * A, warp_first, S, 0, A, aligned);
  for (int half = 0; half < 2; ++half)
    if (lane % 4 == 0 && mine[half] < S)
      t.lse[(b * p.H + h) * S + mine[half]] = running.largest[half] * scale + logf(running.sum[half]);
}

template <int kA>
void launch(const Problem& p, const ForwardTensors<Bf16>& t) {
  cudaFuncSetAttribute(forward_kernel<kA>, cudaFuncAttributeMaxDynamicSharedMemorySize, kForwardBytes<kA>);
  const dim3 grid((p.S + kRows - 1) / kRows, p.H, static_cast<unsigned>(p.B));
  forward_kernel<kA><<<grid, kThreads, kForwardBytes<kA>, p.stream>>>(
      p, t, 1 / sqrtf(static_cast<float>(p.A)), aligned_heads(p.A, t.qkv, t.o));
}

}  // namespace

void tile_forward(const Problem& p, const ForwardTensors<Bf16>& t) {
  if (p.A <= 64) return launch<64>(p, t);
  if (p.A <= 128) return launch<128>(p, t);
  launch<kWidestTile>(p, t);
}

}  // namespace moesaic::ops::attention
