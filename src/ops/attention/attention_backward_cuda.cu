#include "ops/attention/tiles.cuh"

namespace moesaic::ops::attention {
namespace {

/// Steps of the two passes: keys for d_q, queries for d_k and d_v. Short where accumulators leave few registers.
template <int kA>
constexpr int kKeys = kA > 128 ? 32 : 64;
constexpr int kQueries = 32;
/// Columns of d_k and d_v that a block makes: those of wide heads do not fit one block's registers.
template <int kA>
constexpr int kPart = kA > 128 ? 128 : kA;

template <int kA>
constexpr int kQueryPassBytes = (2 * kRows + 4 * kKeys<kA>)*kPitch<kA> * 2;
template <int kA>
constexpr int kKeyPassBytes = (2 * kRows + 4 * kQueries) * kPitch<kA> * 2 + 2 * 3 * kQueries * 4;

/// A block: d_q of kRows queries of one head.
template <int kA>
__global__ void __launch_bounds__(kThreads, 1)
    query_pass(Problem p, BackwardTensors<Bf16> t, float scale, bool aligned) {
  constexpr int kStep = kKeys<kA>;
  extern __shared__ __align__(16) unsigned char memory[];
  Bf16* queries = reinterpret_cast<Bf16*>(memory);
  Bf16* d_out = queries + kRows * kPitch<kA>;
  Bf16* keys = d_out + kRows * kPitch<kA>;       // [2][kStep]
  Bf16* values = keys + 2 * kStep * kPitch<kA>;  // [2][kStep]
  const int S = p.S, A = p.A, h = blockIdx.y, group = h / (p.H / p.G);
  const int64_t b = blockIdx.z, row = p.row();
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kRows;  // late queries see most keys
  const Bf16* sequence = t.qkv + b * S * row;
  const Head q{sequence + int64_t{h} * A, row}, k{sequence + int64_t{p.H + group} * A, row},
      v{sequence + int64_t{p.H + p.G + group} * A, row}, d_o{t.d_o + (b * S * p.H + h) * A, int64_t{p.H} * A};
  const int32_t* doc_start = p.doc_start ? p.doc_start + b * S : nullptr;

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warp_first = first + warp * 16;
  const int mine[2] = {warp_first + lane / 4, warp_first + lane / 4 + 8};
  int first_key[2] = {0, 0}, least = 0;
  if (doc_start) {
    const int r = first + threadIdx.x;
    least = block_min(threadIdx.x < kRows && r < S ? doc_start[r] : INT_MAX);
  }
  float lse[2] = {0, 0}, delta[2] = {0, 0};
  for (int half = 0; half < 2; ++half) {
    if (mine[half] >= S) continue;
    if (doc_start) first_key[half] = doc_start[mine[half]];
    lse[half] = t.lse[(b * p.H + h) * S + mine[half]] * kLog2e;
    delta[half] = t.delta[(b * p.H + h) * S + mine[half]];
  }
  const int begin = least / kStep, end = (min(first + kRows, S) - 1) / kStep + 1;

  const auto start = [&](int block, int place) {
    start_tile<kStep, kA>(keys + place * kStep * kPitch<kA>, k, block * kStep, S, A, aligned);
    start_tile<kStep, kA>(values + place * kStep * kPitch<kA>, v, block * kStep, S, A, aligned);
  };
  start_tile<kRows, kA>(queries, q, first, S, A, aligned);
  start_tile<kRows, kA>(d_out, d_o, first, S, A, aligned);
  start(begin, 0);
  close_copies();
  float d_q[kA / 8][4];
  clear(d_q);
  for (int block = begin; block < end; ++block) {
    const int place = (block - begin) % 2;
    if (block + 1 < end) start(block + 1, 1 - place);
    close_copies();
    wait_copies<1>();
    __syncthreads();
    if (block * kStep < warp_first + 16) {  // else no query of this warp sees them
      const Bf16* these_keys = keys + place * kStep * kPitch<kA>;
      float probs[kStep / 8][4], d_scores[kStep / 8][4];
      clear(probs);
      multiply_rows<kA, kStep>(probs, queries + warp * 16 * kPitch<kA>, these_keys);
      clear(d_scores);
      multiply_rows<kA, kStep>(d_scores, d_out + warp * 16 * kPitch<kA>, values + place * kStep * kPitch<kA>);
#pragma unroll
      for (int n = 0; n < kStep / 8; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int key = block * kStep + n * 8 + lane % 4 * 2 + e % 2;
          const bool hidden = key > mine[e / 2] || key < first_key[e / 2];
          const float prob = exp2f(probs[n][e] * (scale * kLog2e) - lse[e / 2]);
          d_scores[n][e] = hidden ? 0.0f : prob * (d_scores[n][e] - delta[e / 2]);
        }
      multiply<kA, kA, kStep>(d_q, d_scores, these_keys);
    }
    __syncthreads();  // the next round but one writes where these lie
  }
  const float factor[2] = {scale, scale};
  store_rows<kA>(d_q, factor, t.d_qkv + b * S * row + int64_t{h} * A, row, warp_first, S, 0, A, aligned);
}

/// A block: d_k and d_v of kRows keys of one key/value head (kPart columns of them), over its query heads in order and the
/// queries that see any of the keys. Scores are transposed here: a row is a key, a column a query.
template <int kA>
__global__ void __launch_bounds__(kThreads, 1)
    key_pass(Problem p, BackwardTensors<Bf16> t, float scale, bool aligned) {
  extern __shared__ __align__(16) unsigned char memory[];
  Bf16* keys = reinterpret_cast<Bf16*>(memory);
  Bf16* values = keys + kRows * kPitch<kA>;
  Bf16* queries = values + kRows * kPitch<kA>;                               // [2][kQueries]
  Bf16* d_out = queries + 2 * kQueries * kPitch<kA>;                         // [2][kQueries]
  float* lse = reinterpret_cast<float*>(d_out + 2 * kQueries * kPitch<kA>);  // [2][kQueries]
  float* delta = lse + 2 * kQueries;                                         // [2][kQueries]
  int32_t* first_key = reinterpret_cast<int32_t*>(delta + 2 * kQueries);     // [2][kQueries]
  constexpr int kParts = kA / kPart<kA>;
  const int S = p.S, A = p.A, group = blockIdx.y / kParts, part = blockIdx.y % kParts * kPart<kA>,
            heads = p.H / p.G;
  const int64_t b = blockIdx.z, row = p.row();
  const int first = blockIdx.x * kRows;  // early keys are seen by most queries
  const Bf16* sequence = t.qkv + b * S * row;
  const Head k{sequence + int64_t{p.H + group} * A, row}, v{sequence + int64_t{p.H + p.G + group} * A, row};
  const int32_t* doc_start = p.doc_start ? p.doc_start + b * S : nullptr;

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warp_first = first + warp * 16;
  const int mine[2] = {warp_first + lane / 4, warp_first + lane / 4 + 8};
  int last_query = S - 1;  // no later one sees any of the keys
  if (doc_start) {
    const int last_key = min(first + kRows, S) - 1;
    int last = first;
    for (int r = first + threadIdx.x; r < S; r += kThreads)
      if (doc_start[r] <= last_key) last = r;
    last_query = -block_min(-last);
  }
  const int begin = first / kQueries, steps = last_query / kQueries + 1 - begin;  // of one head

  const auto start = [&](int i, int place) {
    const int h = group * heads + i / steps, at = (begin + i % steps) * kQueries;
    start_tile<kQueries, kA>(queries + place * kQueries * kPitch<kA>, {sequence + int64_t{h} * A, row}, at, S,
                             A, aligned);
    start_tile<kQueries, kA>(d_out + place * kQueries * kPitch<kA>,
                             {t.d_o + (b * S * p.H + h) * A, int64_t{p.H} * A}, at, S, A, aligned);
    if (threadIdx.x < kQueries) {
      const int r = at + threadIdx.x, to = place * kQueries + threadIdx.x;
      const int64_t from = r < S ? (b * p.H + h) * S + r : 0;
      start_copy<4>(lse + to, t.lse + from, r < S);
      start_copy<4>(delta + to, t.delta + from, r < S);
      if (doc_start) start_copy<4>(first_key + to, doc_start + (r < S ? r : 0), r < S);
    }
  };
  start_tile<kRows, kA>(keys, k, first, S, A, aligned);
  start_tile<kRows, kA>(values, v, first, S, A, aligned);
  start(0, 0);
  close_copies();
  float d_k[kPart<kA> / 8][4], d_v[kPart<kA> / 8][4];
  clear(d_k);
  clear(d_v);
  for (int i = 0; i < steps * heads; ++i) {
    const int place = i % 2, at = (begin + i % steps) * kQueries;
    if (i + 1 < steps * heads) start(i + 1, 1 - place);
    close_copies();
    wait_copies<1>();
    __syncthreads();
    if (at + kQueries > warp_first) {  // else no query sees this warp's keys
      const Bf16 *these_queries = queries + place * kQueries * kPitch<kA>,
                 *these_d_out = d_out + place * kQueries * kPitch<kA>;
      float probs[kQueries / 8][4], d_scores[kQueries / 8][4];
      clear(probs);
      multiply_rows<kA, kQueries>(probs, keys + warp * 16 * kPitch<kA>, these_queries);
      clear(d_scores);
      multiply_rows<kA, kQueries>(d_scores, values + warp * 16 * kPitch<kA>, these_d_out);
#pragma unroll
      for (int n = 0; n < kQueries / 8; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int column = n * 8 + lane % 4 * 2 + e % 2, query = at + column,
                    to = place * kQueries + column;
          const bool hidden = mine[e / 2] > query || (doc_start && mine[e / 2] < first_key[to]);
          const float prob = exp2f(probs[n][e] * (scale * kLog2e) - lse[to] * kLog2e);
          probs[n][e] = hidden ? 0.0f : prob;
          d_scores[n][e] = hidden ? 0.0f : prob * (d_scores[n][e] - delta[to]);
        }
      multiply<kA, kPart<kA>, kQueries>(d_v, probs, these_d_out + part);
      multiply<kA, kPart<kA>, kQueries>(d_k, d_scores, these_queries + part);
    }
    __syncthreads();  // the next round but one writes where these lie
  }
  Bf16* to = t.d_qkv + b * S * row;
  const float plain[2] = {1, 1}, factor[2] = {scale, scale};
  store_rows<kPart<kA>>(d_k, factor, to + int64_t{p.H + group} * A, row, warp_first, S, part, A, aligned);
  store_rows<kPart<kA>>(d_v, plain, to + int64_t{p.H + p.G + group} * A, row, warp_first, S, part, A,
                        aligned);
}

template <int kA>
void launch(const Problem& p, const BackwardTensors<Bf16>& t) {
  const float scale = 1 / sqrtf(static_cast<float>(p.A));
  const bool aligned = aligned_heads(p.A, t.qkv, t.d_o) && aligned_heads(p.A, t.d_qkv, t.d_qkv);
  const unsigned blocks = (p.S + kRows - 1) / kRows, sequences = static_cast<unsigned>(p.B);
  cudaFuncSetAttribute(query_pass<kA>, cudaFuncAttributeMaxDynamicSharedMemorySize, kQueryPassBytes<kA>);
  cudaFuncSetAttribute(key_pass<kA>, cudaFuncAttributeMaxDynamicSharedMemorySize, kKeyPassBytes<kA>);
  query_pass<kA>
      <<<dim3(blocks, p.H, sequences), kThreads, kQueryPassBytes<kA>, p.stream>>>(p, t, scale, aligned);
  key_pass<kA><<<dim3(blocks, p.G * (kA / kPart<kA>), sequences), kThreads, kKeyPassBytes<kA>, p.stream>>>(
      p, t, scale, aligned);
}

}  // namespace

void tile_backward(const Problem& p, const BackwardTensors<Bf16>& t) {
  make_delta(p, t);
  if (p.A <= 64) return launch<64>(p, t);
  if (p.A <= 128) return launch<128>(p, t);
  launch<kWidestTile>(p, t);
}

}  // namespace moesaic::ops::attention
