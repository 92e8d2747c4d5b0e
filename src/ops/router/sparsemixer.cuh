#pragma once
// One choice of SparseMixer (sparsemixer_cpu.cpp) by the lanes that hold a token's logits.
#include "ops/router/router_token.cuh"

namespace moesaic::ops {

struct MixerChoice {
  int expert;
  float prob;  // its softmax over what is near
};

/// Orders as the CPU chooses: numbers by size, the first of equals; NaN only when nothing else is left, the last of them.
__device__ inline uint32_t mixer_key(float logit, int expert) {
  return isnan(logit) ? 1 + static_cast<uint32_t>(expert) : ordered(logit);
}

/// The best expert but `taken` (-1: none); probs = softmax over the logits that are near it, zero elsewhere. row: the
/// token's logits; logits: the lane's part of them. The whole warp calls it.
template <class L>
__device__ MixerChoice near_softmax(const float* row, const float (&logits)[L::kValues], int lane,
                                    int num_experts, float eps, int taken, float (&probs)[L::kValues]) {
  uint32_t key = 0, expert = 0xffffffffu;
  const auto open = [&](int i) { return L::expert(lane, i) < num_experts && L::expert(lane, i) != taken; };
#pragma unroll
  for (int i = 0; i < L::kValues; ++i)
    if (open(i)) key = max(key, mixer_key(logits[i], L::expert(lane, i)));
  key = group_max<L>(key);
#pragma unroll
  for (int i = L::kValues - 1; i >= 0; --i)
    if (open(i) && mixer_key(logits[i], L::expert(lane, i)) == key)
      expert = static_cast<uint32_t>(L::expert(lane, i));
  const int best = static_cast<int>(group_min<L>(expert));
  const float top = row[best];
  float sum = 0;
#pragma unroll
  for (int i = 0; i < L::kValues; ++i) {
    // Rounded as on the CPU: who is near hangs on the last bit.
    const float distance = cpu_quotient(__fsub_rn(top, logits[i]), fmaxf(fabsf(logits[i]), top));
    probs[i] = !open(i) || distance > 2 * eps ? 0.0f : expf(logits[i] - top);
    sum += probs[i];
  }
  sum = group_sum<L>(sum);
#pragma unroll
  for (int i = 0; i < L::kValues; ++i) probs[i] /= sum;
  return {best, expf(top - top) / sum};
}

}  // namespace moesaic::ops
