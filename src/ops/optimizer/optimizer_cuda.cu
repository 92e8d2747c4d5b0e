#include "ops/optimizer/optimizer_bodies.h"
#include "ops/rows/words.cuh"

namespace moesaic::ops {
namespace {

constexpr int kThreads = 256,
              N = 4;  // N elements of a thread at a time: 16-byte accesses of gradient and state

/// Where weight decay applies among the elements of one launch: a shard of more ranges takes several launches.
struct DecayRanges {
  static constexpr int kMost = 64;
  int32_t count;
  int64_t begin[kMost], end[kMost];

  /// The first range that ends behind element i; count when none does.
  __device__ int find(int64_t i) const {
    int low = 0, high = count;
    while (low < high) {
      const int middle = (low + high) / 2;
      if (end[middle] > i)
        high = middle;
      else
        low = middle + 1;
    }
    return low;
  }
};

/// FP32 masters that are the parameters themselves.
struct FullMaster {
  float* param;
  bool packed() const { return packs(param, N, N, 4); }

  template <int kCount>
  __device__ void load(int64_t i, float (&w)[kCount]) const {
    const auto words = load_words<kCount>(param + i);
#pragma unroll
    for (int k = 0; k < kCount; ++k) w[k] = words[k];
  }
  template <int kCount>
  __device__ void store(int64_t i, const float (&w)[kCount]) const {
    store_words(param + i, w);
  }
};

/// FP32 masters as a BF16 parameter and a remainder: bits of master = bits of parameter * 2^16 + signed remainder.
struct SplitMaster {
  uint16_t *param, *remainder;
  bool packed() const { return packs(param, N, N, 2) && packs(remainder, N, N, 2); }

  template <int kCount>
  struct alignas(2 * kCount) Halves {
    uint16_t values[kCount];
  };
  template <int kCount>
  __device__ void load(int64_t i, float (&w)[kCount]) const {
    const auto high = *reinterpret_cast<const Halves<kCount>*>(param + i);
    const auto low = *reinterpret_cast<const Halves<kCount>*>(remainder + i);
#pragma unroll
    for (int k = 0; k < kCount; ++k)
      w[k] =
          __uint_as_float((static_cast<uint32_t>(high.values[k]) << 16) +
                          static_cast<uint32_t>(static_cast<int32_t>(static_cast<int16_t>(low.values[k]))));
  }
  template <int kCount>
  __device__ void store(int64_t i, const float (&w)[kCount]) const {
    Halves<kCount> high, low;
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      const uint32_t bits = __float_as_uint(w[k]);
      high.values[k] = static_cast<uint16_t>((bits + 0x8000u) >> 16);
      low.values[k] = static_cast<uint16_t>(bits);
    }
    *reinterpret_cast<Halves<kCount>*>(param + i) = high;
    *reinterpret_cast<Halves<kCount>*>(remainder + i) = low;
  }
};

/// What is the same for every element; the step's numbers lie on the device.
struct Common {
  const float *grad, *scalars, *clip_scale;
  const int32_t* ok;
  float weight_decay;
};

struct AdamWRule {
  float *m, *v;
  float beta1, beta2, eps;
  bool packed() const { return packs(m, N, N, 4) && packs(v, N, N, 4); }

  template <int kCount>
  __device__ void step(int64_t i, const float* scalars, float clip, const Words<float, kCount>& grad,
                       const float (&weight_decay)[kCount], float (&w)[kCount]) const {
    const float lr = scalars[0], scale1 = 1 / scalars[1], scale2 = 1 / scalars[2];
    const auto m_words = load_words<kCount>(m + i), v_words = load_words<kCount>(v + i);
    float m_new[kCount], v_new[kCount];
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      const float d = clip * grad[k];
      m_new[k] = beta1 * m_words[k] + (1 - beta1) * d;
      v_new[k] = beta2 * v_words[k] + (1 - beta2) * d * d;
      const float step = (m_new[k] * scale1) / (sqrtf(v_new[k] * scale2) + eps);
      w[k] -= lr * (step + weight_decay[k] * w[k]);
    }
    store_words(m + i, m_new);
    store_words(v + i, v_new);
  }
};

struct SgdRule {
  float* u;  // null: no momentum
  float momentum;
  bool packed() const { return packs(u, N, N, 4); }

  template <int kCount>
  __device__ void step(int64_t i, const float* scalars, float clip, const Words<float, kCount>& grad,
                       const float (&weight_decay)[kCount], float (&w)[kCount]) const {
    const float lr = scalars[0];
    float step[kCount];
#pragma unroll
    for (int k = 0; k < kCount; ++k) step[k] = clip * grad[k] + weight_decay[k] * w[k];
    if (u != nullptr) {
      const auto words = load_words<kCount>(u + i);
#pragma unroll
      for (int k = 0; k < kCount; ++k) step[k] += momentum * words[k];
      store_words(u + i, step);
    }
#pragma unroll
    for (int k = 0; k < kCount; ++k) w[k] -= lr * step[k];
  }
};

/// kCount neighbouring elements from i on.
template <int kCount, class Master, class Rule>
__device__ void update(int64_t i, const Common& common, const Master& master, const Rule& rule,
                       const DecayRanges& decay) {
  const auto grad = load_words<kCount>(common.grad + i);
  float w[kCount], weight_decay[kCount];
  master.load(i, w);
  int range = decay.find(i);
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    if (range < decay.count && decay.end[range] <= i + k) ++range;  // a range has at least one element
    weight_decay[k] = range < decay.count && decay.begin[range] <= i + k ? common.weight_decay : 0;
  }
  rule.step(i, common.scalars, *common.clip_scale, grad, weight_decay, w);
  master.store(i, w);
}

/// Elements [first, end): in packs of N up to packed_end, then one by one.
template <class Master, class Rule>
__global__ void __launch_bounds__(kThreads)
    update_kernel(int64_t first, int64_t packed_end, int64_t end, const __grid_constant__ Common common,
                  const __grid_constant__ Master master, const __grid_constant__ Rule rule,
                  const __grid_constant__ DecayRanges decay) {
  if (*common.ok == 0) return;
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = first + thread * N; i < packed_end; i += stride * N)
    update<N>(i, common, master, rule, decay);
  for (int64_t i = packed_end + thread; i < end; i += stride) update<1>(i, common, master, rule, decay);
}

template <class Master, class Rule>
void launch(const OpContext& c, const OptimizerShard& shard, float weight_decay, const Master& master,
            const Rule& rule) {
  const int64_t count = c.shape(shard.param).numel();
  const Common common{.grad = c.in<float>(shard.grad),
                      .scalars = c.in<float>(shard.scalars),
                      .clip_scale = c.in<float>(shard.clip_scale),
                      .ok = c.in<int32_t>(shard.ok),
                      .weight_decay = weight_decay};
  const bool packed = master.packed() && rule.packed() && packs(common.grad, N, N, 4);
  auto range = shard.decay.begin();
  for (int64_t first = 0; first < count;) {
    while (range != shard.decay.end() && range->end <= first) ++range;
    DecayRanges decay{};
    for (auto r = range; r != shard.decay.end() && decay.count < DecayRanges::kMost; ++r, ++decay.count) {
      decay.begin[decay.count] = r->begin;
      decay.end[decay.count] = r->end;
    }
    // Up to the first range that found no room, but a whole number of packs, so that the next launch is aligned too. There is
    // always one: kMost ranges have more elements than a pack.
    const bool all = shard.decay.end() - range <= decay.count;
    const int64_t end = all ? count : (range + decay.count)->begin / N * N;
    const int64_t packed_end = packed ? first + (end - first) / N * N : first;
    update_kernel<<<num_blocks(ceil_div(end - first, kThreads * N)), kThreads, 0, cuda_stream(c)>>>(
        first, packed_end, end, common, master, rule, decay);
    first = end;
  }
}

template <class Rule>
void update_shard(const OpContext& c, const OptimizerShard& shard, float weight_decay, const Rule& rule) {
  if (shard.remainder)
    launch(c, shard, weight_decay,
           SplitMaster{reinterpret_cast<uint16_t*>(c.inout<bf16>(shard.param)),
                       c.inout<uint16_t>(shard.remainder)},
           rule);
  else
    launch(c, shard, weight_decay, FullMaster{c.inout<float>(shard.param)}, rule);
}

}  // namespace

void adamw_cuda(const OpContext& c, const AdamW& args) {
  update_shard(c, args.shard, args.weight_decay,
               AdamWRule{c.inout<float>(args.m), c.inout<float>(args.v), args.beta1, args.beta2, args.eps});
}

void sgd_cuda(const OpContext& c, const Sgd& args) {
  update_shard(c, args.shard, args.weight_decay,
               SgdRule{inout_or_null<float>(c, args.momentum_buffer), args.momentum});
}

}  // namespace moesaic::ops
