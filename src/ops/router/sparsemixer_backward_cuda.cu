#include "ops/router/router_bodies.h"
#include "ops/router/sparsemixer.cuh"

namespace moesaic::ops {
namespace {

struct MixerBackward {
  const float *logits, *probs, *lse, *d_weights;  // lse: null without z-loss
  const float* balance_grad;                      // null without, like scope
  const int32_t* scope;
  float* d_logits;
  int64_t num_tokens;
  int num_experts;
  float eps, scale, z_grad;
};

template <class L>
__global__ void __launch_bounds__(kRouterThreads) sparsemixer_backward_kernel(const MixerBackward a) {
  const int lane = static_cast<int>(threadIdx.x) % L::kLanes, E = a.num_experts;
  const int64_t token =
      (static_cast<int64_t>(blockIdx.x) * kRouterThreads + static_cast<int>(threadIdx.x)) / L::kLanes;
  const bool present = token < a.num_tokens;
  const int64_t t = present ? token : a.num_tokens - 1;  // the whole warp must take part
  const float* row = a.logits + t * E;
  float logits[L::kValues], probs[L::kValues], values[L::kValues] = {};
  load_row<L>(row, lane, E, 0.0f, logits);
  if (a.balance_grad != nullptr) {
    float d_probs[L::kValues];
    load_row<L>(a.probs + t * E, lane, E, 0.0f, probs);
    load_row<L>(a.balance_grad + int64_t{a.scope[t]} * E, lane, E, 0.0f, d_probs);
    softmax_gradient<L>(probs, d_probs, values);
  }
  int taken = -1;
  for (int k = 0; k < 2; ++k) {
    const MixerChoice choice = near_softmax<L>(row, logits, lane, E, a.eps, taken, probs);
    const float pull = choice.prob * (a.scale * a.d_weights[2 * t + k]);
#pragma unroll
    for (int i = 0; i < L::kValues; ++i) {
      values[i] -= pull * probs[i];
      if (L::expert(lane, i) == choice.expert) values[i] += pull;
    }
    taken = choice.expert;
  }
  if (a.lse != nullptr) {
    const float lse = a.lse[t], factor = a.z_grad * 2 * lse;
#pragma unroll
    for (int i = 0; i < L::kValues; ++i) values[i] += factor * cpu_exp(logits[i] - lse);
  }
  if (present) store_row<L>(a.d_logits + t * E, lane, E, values);
}

}  // namespace

void sparsemixer_backward_cuda(const OpContext& c, const RouterBackward& args) {
  const int64_t T = c.shape(args.logits).rows(), E = c.shape(args.logits)[-1];
  const MixerBackward a{.logits = c.in<float>(args.logits),
                        .probs = c.in<float>(args.probs),
                        .lse = args.z_grad != 0 ? c.in<float>(args.lse) : nullptr,
                        .d_weights = c.in<float>(args.d_weights),
                        .balance_grad = in_or_null<float>(c, args.balance_grad),
                        .scope = in_or_null<int32_t>(c, args.scope),
                        .d_logits = c.out<float>(args.d_logits),
                        .num_tokens = T,
                        .num_experts = static_cast<int>(E),
                        .eps = static_cast<float>(args.config.sparsemixer_eps),
                        .scale = static_cast<float>(args.config.weight_scale),
                        .z_grad = args.z_grad};
  const bool packed = packs(a.logits, E, 4, 4) && packs(a.probs, E, 4, 4) && packs(a.d_logits, E, 4, 4) &&
                      packs(a.balance_grad, E, 4, 4);
  with_lanes(E, packed, [&](auto lanes) {
    using L = decltype(lanes);
    constexpr int kTokens = kRouterThreads / L::kLanes;
    sparsemixer_backward_kernel<L>
        <<<static_cast<unsigned>(ceil_div(T, kTokens)), kRouterThreads, 0, cuda_stream(c)>>>(a);
  });
}

}  // namespace moesaic::ops
