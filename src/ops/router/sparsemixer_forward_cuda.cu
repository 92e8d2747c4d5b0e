#include "ops/router/router_bodies.h"
#include "ops/router/sparsemixer.cuh"

namespace moesaic::ops {
namespace {

struct Mixer {
  const float* logits;
  int32_t* indices;
  float *weights, *probs, *lse;  // lse: null when absent
  int64_t num_tokens;
  int num_experts;
  float eps, scale;
};

template <class L>
__global__ void __launch_bounds__(kRouterThreads) sparsemixer_forward_kernel(const Mixer a) {
  const int lane = static_cast<int>(threadIdx.x) % L::kLanes, E = a.num_experts;
  const int64_t token =
      (static_cast<int64_t>(blockIdx.x) * kRouterThreads + static_cast<int>(threadIdx.x)) / L::kLanes;
  const bool present = token < a.num_tokens;
  const int64_t t = present ? token : a.num_tokens - 1;  // the whole warp must take part
  const float* row = a.logits + t * E;
  float logits[L::kValues], probs[L::kValues], top = -INFINITY, sum = 0;
  load_row<L>(row, lane, E, -INFINITY, logits);
#pragma unroll
  for (int i = 0; i < L::kValues; ++i) top = fmaxf(top, logits[i]);
  top = group_max<L>(top);
#pragma unroll
  for (int i = 0; i < L::kValues; ++i) {
    probs[i] = L::expert(lane, i) < E ? cpu_exp(logits[i] - top) : 0.0f;
    sum += probs[i];
  }
  sum = group_sum<L>(sum);
#pragma unroll
  for (int i = 0; i < L::kValues; ++i) probs[i] = cpu_quotient(probs[i], sum);
  if (present) store_row<L>(a.probs + t * E, lane, E, probs);
  if (present && lane == 0 && a.lse != nullptr) a.lse[t] = top + logf(sum);

  int taken = -1;
  for (int k = 0; k < 2; ++k) {
    const MixerChoice choice = near_softmax<L>(row, logits, lane, E, a.eps, taken, probs);
    taken = choice.expert;
    if (!present || lane != 0) continue;
    a.indices[2 * t + k] = choice.expert;
    a.weights[2 * t + k] = choice.prob * a.scale;
  }
}

}  // namespace

void sparsemixer_forward_cuda(const OpContext& c, const RouterForward& args) {
  const int64_t T = c.shape(args.logits).rows(), E = c.shape(args.logits)[-1];
  const Mixer a{.logits = c.in<float>(args.logits),
                .indices = c.out<int32_t>(args.indices),
                .weights = c.out<float>(args.weights),
                .probs = c.out<float>(args.probs),
                .lse = out_or_null<float>(c, args.lse),
                .num_tokens = T,
                .num_experts = static_cast<int>(E),
                .eps = static_cast<float>(args.config.sparsemixer_eps),
                .scale = static_cast<float>(args.config.weight_scale)};
  const bool packed = packs(a.logits, E, 4, 4) && packs(a.probs, E, 4, 4);
  with_lanes(E, packed, [&](auto lanes) {
    using L = decltype(lanes);
    constexpr int kTokens = kRouterThreads / L::kLanes;
    sparsemixer_forward_kernel<L>
        <<<static_cast<unsigned>(ceil_div(T, kTokens)), kRouterThreads, 0, cuda_stream(c)>>>(a);
  });
}

}  // namespace moesaic::ops
