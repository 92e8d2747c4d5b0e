#include "ops/router/router_bodies.h"
#include "ops/router/router_token.cuh"

namespace moesaic::ops {
namespace {

struct Backward {
  const float *logits, *weights, *probs, *lse, *d_weights;  // lse: null without z-loss
  const float* balance_grad;                                // null without, like scope
  const int32_t *indices, *scope;
  float* d_logits;
  int64_t num_tokens;
  int num_experts, top_k;
  bool sigmoid, softmax_after_topk, renormalize;
  float scale, z_grad;
  int stride;  // floats of shared memory per token
};

/// Writes what the weights' gradient adds for each of a token's chosen experts to added [E]: to the gradient of its logit
/// with softmax_after_topk, else to that of its score.
template <class L>
__device__ void add_weight_gradient(const Backward& a, int64_t t, int lane, float* added) {
  const int32_t* chosen = a.indices + t * a.top_k;
  const float *weight = a.weights + t * a.top_k, *d_weight = a.d_weights + t * a.top_k;
  float dot = 0, sum = 0;
  for (int k = lane; k < a.top_k; k += L::kLanes) {
    dot += weight[k] * d_weight[k];
    const int64_t at = t * a.num_experts + chosen[k];
    if (a.renormalize) sum += a.sigmoid ? cpu_sigmoid(a.logits[at]) : a.probs[at];
  }
  dot = group_sum<L>(dot);
  sum = group_sum<L>(sum) + (a.sigmoid ? kSigmoidSumFloor : 0.0f);
  for (int k = lane; k < a.top_k; k += L::kLanes) {
    float value = a.scale * d_weight[k];
    if (a.softmax_after_topk)
      value = weight[k] * (d_weight[k] - dot / a.scale);
    else if (a.renormalize)
      value = (value - dot) / sum;
    added[chosen[k]] = value;
  }
}

/// d_logits from the gradients of probs = score / sum of scores and of the scores, for sigmoids.
template <class L>
__device__ void sigmoid_gradient(const Backward& a, const float* probs_row, int lane,
                                 const float (&logits)[L::kValues], const float (&d_probs)[L::kValues],
                                 const float (&d_score)[L::kValues], float (&y)[L::kValues]) {
  float scores[L::kValues], sum = 0, dot = 0;
#pragma unroll
  for (int i = 0; i < L::kValues; ++i)
    scores[i] = L::expert(lane, i) < a.num_experts ? cpu_sigmoid(logits[i]) : 0.0f;
  if (a.balance_grad != nullptr) {
    float probs[L::kValues];
    load_row<L>(probs_row, lane, a.num_experts, 0.0f, probs);
#pragma unroll
    for (int i = 0; i < L::kValues; ++i) {
      sum += scores[i];
      dot += probs[i] * d_probs[i];
    }
    sum = group_sum<L>(sum) + kSigmoidSumFloor;
    dot = group_sum<L>(dot);
  }
#pragma unroll
  for (int i = 0; i < L::kValues; ++i) {
    const float through_probs = a.balance_grad != nullptr ? (d_probs[i] - dot) / sum : 0.0f;
    y[i] = (through_probs + d_score[i]) * scores[i] * (1 - scores[i]);
  }
}

template <class L>
__global__ void __launch_bounds__(kRouterThreads) router_backward_kernel(const Backward a) {
  extern __shared__ float4 shared_memory[];
  const int lane = static_cast<int>(threadIdx.x) % L::kLanes;
  const int slot = static_cast<int>(threadIdx.x) / L::kLanes;
  const int64_t token = static_cast<int64_t>(blockIdx.x) * (blockDim.x / L::kLanes) + slot;
  const bool present = token < a.num_tokens;
  const int64_t t = present ? token : a.num_tokens - 1;  // the whole warp must take part
  const int E = a.num_experts;
  float* const shared_row = reinterpret_cast<float*>(shared_memory) + slot * a.stride;

  float values[L::kValues] = {};
  store_row<L>(shared_row, lane, E, values);
  __syncwarp();
  add_weight_gradient<L>(a, t, lane, shared_row);
  __syncwarp();
  float added[L::kValues], d_probs[L::kValues] = {}, logits[L::kValues] = {};
  load_row<L>(shared_row, lane, E, 0.0f, added);
  if (a.balance_grad != nullptr)
    load_row<L>(a.balance_grad + int64_t{a.scope[t]} * E, lane, E, 0.0f, d_probs);
  if (a.sigmoid || a.lse != nullptr) load_row<L>(a.logits + t * E, lane, E, 0.0f, logits);

  if (a.sigmoid) {
    sigmoid_gradient<L>(a, a.probs + t * E, lane, logits, d_probs, added, values);
  } else {
    float probs[L::kValues];
    load_row<L>(a.probs + t * E, lane, E, 0.0f, probs);
#pragma unroll
    for (int i = 0; i < L::kValues; ++i) d_probs[i] += a.softmax_after_topk ? 0.0f : added[i];
    softmax_gradient<L>(probs, d_probs, values);
#pragma unroll
    for (int i = 0; i < L::kValues; ++i) values[i] += a.softmax_after_topk ? added[i] : 0.0f;
  }
  if (a.lse != nullptr) {
    const float lse = a.lse[t], factor = a.z_grad * 2 * lse;
#pragma unroll
    for (int i = 0; i < L::kValues; ++i) values[i] += factor * cpu_exp(logits[i] - lse);
  }
  if (present) store_row<L>(a.d_logits + t * E, lane, E, values);
}

}  // namespace

void router_backward_cuda(const OpContext& c, const RouterBackward& args) {
  const RouterConfig& config = args.config;
  const int64_t T = c.shape(args.logits).rows(), E = c.shape(args.logits)[-1], K = c.shape(args.indices)[-1];
  if (T == 0) return;
  if (config.score == ScoreFunction::sparsemixer) return sparsemixer_backward_cuda(c, args);
  const Backward a{.logits = c.in<float>(args.logits),
                   .weights = c.in<float>(args.weights),
                   .probs = c.in<float>(args.probs),
                   .lse = args.z_grad != 0 ? c.in<float>(args.lse) : nullptr,
                   .d_weights = c.in<float>(args.d_weights),
                   .balance_grad = in_or_null<float>(c, args.balance_grad),
                   .indices = c.in<int32_t>(args.indices),
                   .scope = in_or_null<int32_t>(c, args.scope),
                   .d_logits = c.out<float>(args.d_logits),
                   .num_tokens = T,
                   .num_experts = static_cast<int>(E),
                   .top_k = static_cast<int>(K),
                   .sigmoid = config.score == ScoreFunction::sigmoid,
                   .softmax_after_topk = config.softmax_after_topk,
                   .renormalize = config.renormalize,
                   .scale = static_cast<float>(config.weight_scale),
                   .z_grad = args.z_grad,
                   .stride = shared_stride(E)};
  const bool packed = packs(a.logits, E, 4, 4) && packs(a.probs, E, 4, 4) && packs(a.d_logits, E, 4, 4) &&
                      packs(a.balance_grad, E, 4, 4);
  with_lanes(E, packed, [&](auto lanes) {
    using L = decltype(lanes);
    const int threads = num_router_threads<L>(a.stride), num_slots = threads / L::kLanes;
    router_backward_kernel<L><<<static_cast<unsigned>(ceil_div(T, num_slots)), static_cast<unsigned>(threads),
                                static_cast<size_t>(num_slots * a.stride) * 4, cuda_stream(c)>>>(a);
  });
}

}  // namespace moesaic::ops
