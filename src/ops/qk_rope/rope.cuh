#pragma once
// What the kernels of both directions share: who does which pairs of which heads, and the table of cosines and sines.
//
// A block takes a group of tokens: it makes their table in shared memory, one entry a thread, and uses it for all heads. A
// team of neighbouring lanes takes a head, each lane kPacks packs of N pairs (i, i + A/2). So each of a head's sums is a sum
// over a team, and each pair is read and written by one thread (in place is allowed).
#include <cmath>

#include "ops/qk_rope/qk_rope.h"
#include "ops/rows/words.cuh"

namespace moesaic::ops::rope {

constexpr int kThreads = 256;
constexpr int kMaxHeadDim = 512;  // a table entry a thread

/// theta^(-2 i / A), divided by the pair's factor, and the factor of cosines and sines.
struct Frequencies {
  double of_pair[kMaxHeadDim / 2];
  double scale;
};
template <class Args>
const Frequencies& frequencies(const Args& args) {
  thread_local Frequencies f;  // of the last call: every layer asks for the same ones
  thread_local float last_theta = 0;
  thread_local int64_t last_head_dim = 0;
  thread_local std::vector<double> last_factors;
  f.scale = args.scale;
  if (args.theta == last_theta && args.head_dim == last_head_dim && args.factors == last_factors) return f;
  last_theta = args.theta;
  last_head_dim = args.head_dim;
  last_factors = args.factors;
  for (int64_t i = 0; i < args.head_dim / 2; ++i) {
    const double of_pair = std::pow(static_cast<double>(args.theta),
                                    -static_cast<double>(i) / static_cast<double>(args.head_dim / 2));
    f.of_pair[i] = args.factors.empty() ? of_pair : of_pair / args.factors[static_cast<size_t>(i)];
  }
  return f;
}

struct Layout {
  int64_t num_rows, width;
  int num_q, num_turned;        // query heads; query and key heads
  int num_values;               // elements of the value heads
  int head_dim, half, group;    // A; pairs of a head; tokens of a group
  int packs, lanes, lane_bits;  // packs of N pairs in a head; lanes of a team, a power of two

  int64_t num_groups() const { return ceil_div(num_rows, group); }
  int64_t table_bytes() const { return int64_t{4} * group * head_dim; }
};

/// N: pairs in a pack.
template <class Args>
Layout layout(int64_t num_rows, const Args& args, int N) {
  Layout l{};
  l.num_rows = num_rows;
  l.num_q = static_cast<int>(args.num_heads);
  l.num_turned = static_cast<int>(args.num_heads + args.num_kv_heads);
  l.head_dim = static_cast<int>(args.head_dim);
  l.num_values = static_cast<int>(args.num_kv_heads * args.head_dim);
  l.width = (args.num_heads + 2 * args.num_kv_heads) * args.head_dim;
  l.half = l.head_dim / 2;
  l.group = std::min(16, kThreads / l.half);
  l.packs = l.half / N;
  while ((1 << l.lane_bits) < std::min(l.packs, 32)) ++l.lane_bits;
  l.lanes = 1 << l.lane_bits;
  return l;
}

/// Whether a lane's share of a head of `head_dim` is one pack of N pairs, and accesses at p are aligned.
inline bool one_pack(const void* p, int64_t head_dim, int64_t N, int64_t bytes) {
  return packs(p, head_dim / 2, N, bytes) && head_dim / 2 / N <= 32;
}

/// The table of one group: [tokens, A/2] cosines, then as many sines.
struct Table {
  float *cosines, *sines;

  __device__ Table(float* memory, const Layout& l) : cosines(memory), sines(memory + l.group * l.half) {}
  /// `frequency`: of this thread's pair, threadIdx.x % half. A block-wide barrier stands on both sides.
  __device__ void fill(const int32_t* positions, int num_tokens, const Layout& l, double frequency,
                       double scale) {
    __syncthreads();
    const int entry = static_cast<int>(threadIdx.x);
    if (entry < num_tokens * l.half) {
      double sine, cosine;
      sincos(static_cast<double>(positions[entry / l.half]) * frequency, &sine, &cosine);
      cosines[entry] = static_cast<float>(scale * cosine);
      sines[entry] = static_cast<float>(scale * sine);
    }
    __syncthreads();
  }
};

/// A thread's place in a group of tokens: one head and its lane in that head's team.
struct Place {
  int token, head, lane;
  bool present;  // false: past the last head; it takes part in its warp's sums all the same
  __device__ Place(int flat, int num_tokens, const Layout& l) {
    const int unit = flat >> l.lane_bits;
    lane = flat & (l.lanes - 1);
    present = unit < num_tokens * l.num_turned;
    token = present ? unit / l.num_turned : 0;
    head = present ? unit - token * l.num_turned : 0;
  }
};
/// Places of a group, whole warps.
__device__ inline int num_places(int num_tokens, const Layout& l) {
  return (num_tokens * l.num_turned * l.lanes + 31) / 32 * 32;
}

__device__ inline float team_sum(float x, int lanes) {
  for (int lane = lanes / 2; lane > 0; lane /= 2) x += __shfl_xor_sync(0xffffffffu, x, lane);
  return x;
}

/// N floats of shared memory, aligned to 16 bytes when N allows it.
template <int N>
__device__ void load_shared(const float* from, float (&to)[N]) {
  constexpr int kStep = N % 4 == 0 ? 4 : 1;
#pragma unroll
  for (int i = 0; i < N; i += kStep) {
    const auto words = load_words<kStep>(from + i);
#pragma unroll
    for (int k = 0; k < kStep; ++k) to[i + k] = words[k];
  }
}

/// Turns pairs by their angles; sign -1 turns them back.
template <int N>
__device__ void rotate(float (&a)[N], float (&b)[N], const float* cosines, const float* sines, float sign) {
  float c[N], s[N];
  load_shared(cosines, c);
  load_shared(sines, s);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const float x = a[i], y = b[i];
    a[i] = x * c[i] - y * sign * s[i];
    b[i] = y * c[i] + x * sign * s[i];
  }
}

/// Copies the value heads of a group's tokens, `first` being the first one.
template <int N, class T>
__device__ void copy_values(const T* from, T* to, int64_t first, int num_tokens, const Layout& l) {
  const int row_packs = l.num_values / N;
  for (int i = static_cast<int>(threadIdx.x); i < num_tokens * row_packs; i += kThreads) {
    const int token = i / row_packs;
    const int64_t at = (first + token + 1) * l.width - l.num_values + (i - token * row_packs) * N;
    store_words<N>(to + at, load_words<N>(from + at));
  }
}

/// Gains of queries and of keys as FP32 in shared memory, [2, A]. f32 or bf16; null: nothing to do.
struct Gains {
  const void *q, *k;
  bool is_bf16;
  __device__ void load(float* to, int head_dim) const {
    if (q == nullptr) return;
    for (int i = static_cast<int>(threadIdx.x); i < 2 * head_dim; i += kThreads) {
      const void* from = i < head_dim ? q : k;
      const int at = i < head_dim ? i : i - head_dim;
      to[i] = is_bf16 ? to_float(static_cast<const __nv_bfloat16*>(from)[at])
                      : static_cast<const float*>(from)[at];
    }
  }
};
template <class Args>
Gains gains(const OpContext& c, const Args& args) {
  if (!args.gain_q) return {};
  return {c.in_bytes(args.gain_q), c.in_bytes(args.gain_k), c.dtype(args.gain_q) == DType::bf16};
}

/// The backward pass without gains.
void turn_back(const OpContext& c, const QkRopeBackward& args);

}  // namespace moesaic::ops::rope
