#include "ops/optimizer/optimizer_bodies.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "base/check.h"
#include "device/cpu/threads.h"

namespace moesaic::ops {
namespace {

constexpr int64_t kBlock = 4096;  // elements; a block of masters fits in the first-level cache

/// The FP32 master whose upper half, rounded, is the parameter.
void join(const bf16* param, const uint16_t* remainder, float* master, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const auto low = static_cast<uint32_t>(static_cast<int32_t>(static_cast<int16_t>(remainder[i])));
    master[i] = std::bit_cast<float>((uint32_t{param[i].bits} << 16) + low);
  }
}

void split(const float* master, bf16* param, uint16_t* remainder, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<uint32_t>(master[i]);
    param[i].bits = static_cast<uint16_t>((bits + 0x8000u) >> 16);
    remainder[i] = static_cast<uint16_t>(bits);
  }
}

/// Calls update(first, count, master, decays) for pieces of the shard in each of which weight decay applies everywhere or
/// nowhere; `master` [count] is changed in place. One update for both storages, so that they follow the same bits.
template <class F>
void update_masters(const OpContext& c, const OptimizerShard& shard, const F& update) {
  const int64_t N = c.shape(shard.param).numel();
  float* f32_param = shard.remainder ? nullptr : c.inout<float>(shard.param);
  bf16* bf16_param = shard.remainder ? c.inout<bf16>(shard.param) : nullptr;
  uint16_t* remainder = shard.remainder ? c.inout<uint16_t>(shard.remainder) : nullptr;
  parallel_for(ceil_div(N, kBlock), [&](int64_t block) {
    const int64_t begin = block * kBlock, end = std::min(begin + kBlock, N);
    std::array<float, kBlock> joined;
    float* master = f32_param ? f32_param + begin : joined.data();
    if (bf16_param) join(bf16_param + begin, remainder + begin, master, end - begin);
    auto range =
        std::find_if(shard.decay.begin(), shard.decay.end(), [&](const auto& r) { return r.end > begin; });
    for (int64_t first = begin; first < end;) {
      const bool decays = range != shard.decay.end() && range->begin <= first;
      const int64_t stop =
          range == shard.decay.end() ? end : std::min(end, decays ? range->end : range->begin);
      update(first, stop - first, master + (first - begin), decays);
      if (decays && stop == range->end) ++range;
      first = stop;
    }
    if (bf16_param) split(master, bf16_param + begin, remainder + begin, end - begin);
  });
}

}  // namespace

void adamw_cpu(const OpContext& c, const AdamW& args) {
  const OptimizerShard& shard = args.shard;
  if (*c.in<int32_t>(shard.ok) == 0) return;
  const float* scalars = c.in<float>(shard.scalars);
  const float lr = scalars[0], scale1 = 1 / scalars[1], scale2 = 1 / scalars[2];
  const float clip = *c.in<float>(shard.clip_scale);
  const float beta1 = args.beta1, beta2 = args.beta2, eps = args.eps;
  const float* all_grad = c.in<float>(shard.grad);
  float *all_m = c.inout<float>(args.m), *all_v = c.inout<float>(args.v);
  update_masters(c, shard, [&](int64_t first, int64_t count, float* __restrict w, bool decays) {
    const float* __restrict grad = all_grad + first;
    float* __restrict m = all_m + first, * __restrict v = all_v + first;
    const float weight_decay = decays ? args.weight_decay : 0;
    for (int64_t i = 0; i < count; ++i) {
      const float d = clip * grad[i];
      m[i] = beta1 * m[i] + (1 - beta1) * d;
      v[i] = beta2 * v[i] + (1 - beta2) * d * d;
      const float step = (m[i] * scale1) / (std::sqrt(v[i] * scale2) + eps);
      w[i] -= lr * (step + weight_decay * w[i]);
    }
  });
}

void sgd_cpu(const OpContext& c, const Sgd& args) {
  const OptimizerShard& shard = args.shard;
  if (*c.in<int32_t>(shard.ok) == 0) return;
  const float lr = c.in<float>(shard.scalars)[0], clip = *c.in<float>(shard.clip_scale);
  const float momentum = args.momentum;
  const float* all_grad = c.in<float>(shard.grad);
  float* all_u = args.momentum_buffer ? c.inout<float>(args.momentum_buffer) : nullptr;
  update_masters(c, shard, [&](int64_t first, int64_t count, float* __restrict w, bool decays) {
    const float* __restrict grad = all_grad + first;
    float* __restrict u = all_u ? all_u + first : nullptr;
    const float weight_decay = decays ? args.weight_decay : 0;
    for (int64_t i = 0; i < count; ++i) {
      float step = clip * grad[i] + weight_decay * w[i];
      if (u) step = u[i] = momentum * u[i] + step;
      w[i] -= lr * step;
    }
  });
}

}  // namespace moesaic::ops
