#include "ops/cuda_op.cuh"
#include "ops/norm/norm_bodies.h"

namespace moesaic::ops {
namespace {

struct Pointers {
  const float* parts;
  const int32_t *overflow, *counted;
  float *grad_norm, *clip_scale;
  int32_t* ok;
  int64_t num_parts, num_overflows;
  float clip;
  bool drop_overflow;
};

/// One warp: there are few parts.
__global__ void __launch_bounds__(32) verdict_kernel(Pointers p) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < p.num_parts; i += 32) sum += p.parts[i];
  bool fits = true;
  for (int64_t i = threadIdx.x; i < p.num_overflows; i += 32) fits = fits && p.overflow[i] == 0;
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lane);
  fits = __all_sync(0xffffffffu, fits);
  if (threadIdx.x != 0) return;
  const auto norm = static_cast<float>(sqrt(sum));
  *p.grad_norm = norm;
  *p.clip_scale = p.clip == 0 ? 1 : fminf(1, p.clip / norm);  // 1 for a norm that is NaN
  *p.ok = isfinite(norm) && *p.counted > 0 && (fits || p.drop_overflow) ? 1 : 0;
}

}  // namespace

void verdict_cuda(const OpContext& c, const Verdict& args) {
  verdict_kernel<<<1, 32, 0, cuda_stream(c)>>>({.parts = c.in<float>(args.parts),
                                                .overflow = c.in<int32_t>(args.overflow),
                                                .counted = c.in<int32_t>(args.counted),
                                                .grad_norm = c.out<float>(args.grad_norm),
                                                .clip_scale = c.out<float>(args.clip_scale),
                                                .ok = c.out<int32_t>(args.ok),
                                                .num_parts = c.shape(args.parts).numel(),
                                                .num_overflows = c.shape(args.overflow).numel(),
                                                .clip = args.clip,
                                                .drop_overflow = args.drop_overflow});
}

}  // namespace moesaic::ops
