#include "ops/cuda_op.cuh"
#include "ops/router/router_bodies.h"

namespace moesaic::ops {
namespace {

constexpr int kThreads = 256;

/// One block.
__global__ void __launch_bounds__(kThreads) bias_update_kernel(int64_t num_experts, const int32_t* counts,
                                                               const int32_t* ok, float rate, float* bias) {
  __shared__ int64_t sums[kThreads];
  if (*ok == 0) return;
  int64_t mine = 0, total = 0;
  for (int64_t x = threadIdx.x; x < num_experts; x += kThreads) mine += counts[x];
  sums[threadIdx.x] = mine;
  __syncthreads();
  for (int i = 0; i < kThreads; ++i) total += sums[i];
  for (int64_t x = threadIdx.x; x < num_experts; x += kThreads) {
    const int64_t missing = total - counts[x] * num_experts;
    if (missing > 0) bias[x] += rate;
    if (missing < 0) bias[x] -= rate;
  }
}

}  // namespace

void router_bias_update_cuda(const OpContext& c, const RouterBiasUpdate& args) {
  bias_update_kernel<<<1, kThreads, 0, cuda_stream(c)>>>(c.shape(args.counts).numel(),
                                                         c.in<int32_t>(args.counts), c.in<int32_t>(args.ok),
                                                         args.rate, c.inout<float>(args.bias));
}

}  // namespace moesaic::ops
