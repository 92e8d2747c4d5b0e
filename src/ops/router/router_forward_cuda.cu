#include "ops/router/router_bodies.h"
#include "ops/router/router_token.cuh"

namespace moesaic::ops {
namespace {

constexpr float kLowest = -INFINITY;

struct Forward {
  const float *logits, *bias;  // bias: null when absent, like lse
  int32_t* indices;
  float *weights, *probs, *lse;
  int64_t num_tokens;
  int num_experts, top_k, num_groups, num_groups_kept;
  bool sigmoid, softmax_after_topk, renormalize, force_balance;
  float scale;
  int stride;  // floats of shared memory per token
};

/// A token's piece of shared memory.
struct Shared {
  float* row;           // [E rounded up to 4] what is summed, later the keys
  uint32_t* group_key;  // [num_groups], when groups are left out
  int32_t* chosen;      // [K]
  float* weight;        // [K]
};
int64_t shared_floats(int64_t num_experts, int64_t num_groups, int64_t top_k) {
  return round_up(num_experts, 4) + num_groups + 2 * top_k;
}
__device__ Shared shared_of(const Forward& a, float* begin) {
  Shared s;
  s.row = begin;
  s.group_key = reinterpret_cast<uint32_t*>(begin + (a.num_experts + 3) / 4 * 4);
  s.chosen = reinterpret_cast<int32_t*>(s.group_key + a.num_groups);
  s.weight = reinterpret_cast<float*>(s.chosen + a.top_k);
  return s;
}

__device__ float score_of(const Forward& a, float logit, float top, float sum) {
  return a.sigmoid ? cpu_sigmoid(logit) : cpu_quotient(cpu_exp(logit - top), sum);
}

/// The expert with the largest key, the lowest of equals; its key becomes 0.
template <class L>
__device__ int take_largest(int lane, uint32_t (&keys)[L::kValues]) {
  uint32_t best = 0, expert = 0xffffffffu;
#pragma unroll
  for (int i = 0; i < L::kValues; ++i) best = max(best, keys[i]);
  best = group_max<L>(best);
#pragma unroll
  for (int i = L::kValues - 1; i >= 0; --i)
    if (keys[i] == best) expert = static_cast<uint32_t>(L::expert(lane, i));
  expert = group_min<L>(expert);
#pragma unroll
  for (int i = 0; i < L::kValues; ++i)
    if (static_cast<uint32_t>(L::expert(lane, i)) == expert) keys[i] = 0;
  return static_cast<int>(expert);
}

/// The score of groups lane, lane + kLanes, ... from the keys in s.row.
template <class L>
__device__ void score_groups(const Forward& a, const Shared& s, int lane) {
  const int size = a.num_experts / a.num_groups;
  for (int group = lane; group < a.num_groups; group += L::kLanes) {
    float first = kLowest, second = kLowest;
    int x = group % size;  // lanes begin at different places, for the sake of the banks
    for (int i = 0; i < size; ++i) {
      const float key = s.row[group * size + x];
      second = fmaxf(second, fminf(first, key));
      first = fmaxf(first, key);
      x = x + 1 == size ? 0 : x + 1;
    }
    s.group_key[group] = ordered(a.bias != nullptr && size > 1 ? first + second : first);
  }
}

/// Takes the keys of experts outside the best groups away.
template <class L>
__device__ void close_groups(const Forward& a, const Shared& s, int lane, const float (&values)[L::kValues],
                             uint32_t (&keys)[L::kValues]) {
#pragma unroll
  for (int i = 0; i < L::kValues; ++i)
    if (keys[i] != 0) s.row[L::expert(lane, i)] = values[i];
  __syncwarp();
  score_groups<L>(a, s, lane);
  // Only the lane of a group reads and writes its key until all are chosen; a chosen one's key becomes 0.
  for (int kept = 0; kept < a.num_groups_kept; ++kept) {
    uint32_t best = 0, group = 0xffffffffu;
    for (int i = lane; i < a.num_groups; i += L::kLanes) best = max(best, s.group_key[i]);
    best = group_max<L>(best);
    for (int i = lane; i < a.num_groups; i += L::kLanes)
      if (s.group_key[i] == best) group = min(group, static_cast<uint32_t>(i));
    group = group_min<L>(group);
    if (group % L::kLanes == lane) s.group_key[group] = 0;
  }
  __syncwarp();
  const int size = a.num_experts / a.num_groups;
#pragma unroll
  for (int i = 0; i < L::kValues; ++i) {
    if (keys[i] != 0 && s.group_key[L::expert(lane, i) / size] != 0) keys[i] = 0;
  }
}

/// Weights of the chosen, from logits or scores in s.weight, in place.
template <class L>
__device__ void finish_weights(const Forward& a, const Shared& s, int lane) {
  if (a.softmax_after_topk) {
    float top = kLowest;
    for (int k = 0; k < a.top_k; ++k) top = fmaxf(top, s.weight[k]);
    __syncwarp();
    for (int k = lane; k < a.top_k; k += L::kLanes) s.weight[k] = cpu_exp(s.weight[k] - top);
    __syncwarp();
  }
  float sum = 1;
  if (a.softmax_after_topk || a.renormalize) {
    sum = 0;
    for (int k = 0; k < a.top_k; ++k) sum += s.weight[k];
    if (a.sigmoid) sum += kSigmoidSumFloor;
    __syncwarp();
  }
  for (int k = lane; k < a.top_k; k += L::kLanes) s.weight[k] = __fdiv_rn(s.weight[k], sum) * a.scale;
}

template <class L>
__global__ void __launch_bounds__(kRouterThreads, L::kValues <= 8 ? 4 : 1)
    router_forward_kernel(const Forward a) {
  extern __shared__ float4 shared_memory[];
  __shared__ float sums[kRouterThreads / 8];
  float* const rows = reinterpret_cast<float*>(shared_memory);
  const int lane = static_cast<int>(threadIdx.x) % L::kLanes;
  const int slot = static_cast<int>(threadIdx.x) / L::kLanes;
  const int num_slots = static_cast<int>(blockDim.x) / L::kLanes;
  const int64_t token = static_cast<int64_t>(blockIdx.x) * num_slots + slot;
  const bool present = token < a.num_tokens;
  const int64_t t = present ? token : a.num_tokens - 1;  // the whole warp must take part
  const Shared s = shared_of(a, rows + slot * a.stride);
  const float* logits = a.logits + t * a.num_experts;

  // What is summed: e^(logit - top), or the sigmoid.
  float values[L::kValues];
  load_row<L>(logits, lane, a.num_experts, kLowest, values);
  float top = 0;
  if (a.lse != nullptr || !a.sigmoid) {
    top = kLowest;
#pragma unroll
    for (int i = 0; i < L::kValues; ++i) top = fmaxf(top, values[i]);
    top = group_max<L>(top);
  }
  if (a.lse != nullptr && a.sigmoid) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < L::kValues; ++i)
      if (L::expert(lane, i) < a.num_experts) sum += cpu_exp(values[i] - top);
    sum = group_sum<L>(sum);
    if (present && lane == 0) a.lse[t] = top + logf(sum);
  }
#pragma unroll
  for (int i = 0; i < L::kValues; ++i) {
    const int expert = L::expert(lane, i);
    const float value = a.sigmoid ? cpu_sigmoid(values[i]) : cpu_exp(values[i] - top);
    values[i] = expert < a.num_experts ? value : 0.0f;
    if (expert < (a.num_experts + 3) / 4 * 4) s.row[expert] = values[i];
  }

  // The sum goes from expert to expert, as the CPU's does; one thread sums a token's.
  __syncthreads();
  if (static_cast<int>(threadIdx.x) < num_slots) {
    const auto* row = reinterpret_cast<const float4*>(rows + static_cast<int>(threadIdx.x) * a.stride);
    float sum = a.sigmoid ? kSigmoidSumFloor : 0.0f;
#pragma unroll 4
    for (int i = 0; i < (a.num_experts + 3) / 4; ++i) {
      const float4 x = row[i];
      sum += x.x, sum += x.y, sum += x.z, sum += x.w;
    }
    sums[threadIdx.x] = sum;
  }
  __syncthreads();
  const float sum = sums[slot];
  if (present && lane == 0 && a.lse != nullptr && !a.sigmoid) a.lse[t] = top + logf(sum);

  float probs[L::kValues];
#pragma unroll
  for (int i = 0; i < L::kValues; ++i) probs[i] = cpu_quotient(values[i], sum);
  if (present) store_row<L>(a.probs + t * a.num_experts, lane, a.num_experts, probs);

  if (!a.sigmoid) {
#pragma unroll
    for (int i = 0; i < L::kValues; ++i) values[i] = probs[i];
  }
  if (a.bias != nullptr) {
    load_row<L>(a.bias, lane, a.num_experts, 0.0f, probs);
#pragma unroll
    for (int i = 0; i < L::kValues; ++i) values[i] += probs[i];
  }
  uint32_t keys[L::kValues];
#pragma unroll
  for (int i = 0; i < L::kValues; ++i) {
    if (isnan(values[i])) values[i] = kLowest;
    keys[i] = L::expert(lane, i) < a.num_experts ? ordered(values[i]) : 0;
  }
  if (a.num_groups_kept < a.num_groups) close_groups<L>(a, s, lane, values, keys);
  for (int k = 0; k < a.top_k; ++k) {
    const int expert =
        a.force_balance ? static_cast<int>((t * a.top_k + k) % a.num_experts) : take_largest<L>(lane, keys);
    if (lane == 0) s.chosen[k] = expert;
  }
  __syncwarp();
  for (int k = lane; k < a.top_k; k += L::kLanes) {
    const float logit = logits[s.chosen[k]];
    s.weight[k] = a.softmax_after_topk ? logit : score_of(a, logit, top, sum);
  }
  __syncwarp();
  finish_weights<L>(a, s, lane);
  for (int k = lane; present && k < a.top_k; k += L::kLanes) {
    a.indices[t * a.top_k + k] = s.chosen[k];
    a.weights[t * a.top_k + k] = s.weight[k];
  }
}

}  // namespace

void router_forward_cuda(const OpContext& c, const RouterForward& args) {
  const RouterConfig& config = args.config;
  const int64_t T = c.shape(args.logits).rows(), E = c.shape(args.logits)[-1], K = c.shape(args.indices)[-1];
  if (T == 0) return;
  if (config.score == ScoreFunction::sparsemixer) return sparsemixer_forward_cuda(c, args);
  const Forward a{.logits = c.in<float>(args.logits),
                  .bias = in_or_null<float>(c, args.bias),
                  .indices = c.out<int32_t>(args.indices),
                  .weights = c.out<float>(args.weights),
                  .probs = c.out<float>(args.probs),
                  .lse = out_or_null<float>(c, args.lse),
                  .num_tokens = T,
                  .num_experts = static_cast<int>(E),
                  .top_k = static_cast<int>(K),
                  .num_groups = static_cast<int>(config.num_groups),
                  .num_groups_kept = static_cast<int>(config.num_groups_kept),
                  .sigmoid = config.score == ScoreFunction::sigmoid,
                  .softmax_after_topk = config.softmax_after_topk,
                  .renormalize = config.renormalize,
                  .force_balance = config.force_balance,
                  .scale = static_cast<float>(config.weight_scale),
                  .stride = shared_stride(shared_floats(E, config.num_groups, K))};
  const bool packed = packs(a.logits, E, 4, 4) && packs(a.probs, E, 4, 4) && packs(a.bias, E, 4, 4);
  with_lanes(E, packed, [&](auto lanes) {
    using L = decltype(lanes);
    const int threads = num_router_threads<L>(a.stride), num_slots = threads / L::kLanes;
    router_forward_kernel<L><<<static_cast<unsigned>(ceil_div(T, num_slots)), static_cast<unsigned>(threads),
                               static_cast<size_t>(num_slots * a.stride) * 4, cuda_stream(c)>>>(a);
  });
}

}  // namespace moesaic::ops
