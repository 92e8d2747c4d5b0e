#include "ops/balance/balance_bodies.h"
#include "ops/cuda_op.cuh"

namespace moesaic::ops {
namespace {

constexpr int kThreads = 1024;

/// Sum over a block of kThreads, in FP64, always in the same order; on thread 0. Every thread calls it, once.
__device__ double block_sum(double x) {
  __shared__ double sums[kThreads / 32];
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) x += __shfl_xor_sync(0xffffffffu, x, lane);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = x;
  __syncthreads();
  double sum = 0;
  if (threadIdx.x == 0)
    for (double part : sums) sum += part;
  return sum;
}

/// One block; a thread takes every kThreads-th group of neighbouring experts.
__global__ void __launch_bounds__(kThreads)
    balance_loss_kernel(int64_t num_groups, int64_t group_size, double per_count, double num_tokens,
                        double coef, const int32_t* counts, const float* prob_sums, float* loss,
                        float* grad) {
  double sum = 0;
  for (int64_t group = threadIdx.x; group < num_groups; group += kThreads) {
    int64_t count = 0;
    double prob_sum = 0;
    for (int64_t i = group * group_size; i < (group + 1) * group_size; ++i) {
      count += counts[i];
      prob_sum += static_cast<double>(prob_sums[i]);
    }
    const double f = per_count * static_cast<double>(count);
    sum += f * prob_sum / num_tokens;
    for (int64_t i = group * group_size; i < (group + 1) * group_size; ++i)
      grad[i] = static_cast<float>(coef * f / num_tokens);
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) *loss += static_cast<float>(coef * sum);
}

/// One block.
__global__ void __launch_bounds__(kThreads)
    z_loss_kernel(int64_t count, double coef, const float* lse, float* loss) {
  double sum = 0;
#pragma unroll 4
  for (int64_t t = threadIdx.x; t < count; t += kThreads) {
    const auto x = static_cast<double>(lse[t]);
    sum += x * x;
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) *loss += static_cast<float>(coef * sum);
}

}  // namespace

void balance_loss_cuda(const OpContext& c, const BalanceLoss& args) {
  const int64_t E = c.shape(args.counts)[-1], count = c.shape(args.counts).numel();
  const int64_t size = args.expert_groups == 0 ? 1 : E / args.expert_groups;
  const auto num_tokens = static_cast<double>(args.tokens_per_scope);
  const double per_count = static_cast<double>(E) / (static_cast<double>(args.top_k * size) * num_tokens);
  balance_loss_kernel<<<1, kThreads, 0, cuda_stream(c)>>>(
      count / size, size, per_count, num_tokens, static_cast<double>(args.coef), c.in<int32_t>(args.counts),
      c.in<float>(args.prob_sums), c.inout<float>(args.loss), c.out<float>(args.grad));
}

void z_loss_cuda(const OpContext& c, const ZLoss& args) {
  z_loss_kernel<<<1, kThreads, 0, cuda_stream(c)>>>(c.shape(args.lse).numel(), static_cast<double>(args.coef),
                                                    c.in<float>(args.lse), c.inout<float>(args.loss));
}

}  // namespace moesaic::ops
