#pragma once
// The bodies, one per device.
#include "device/op_context.h"
#include "ops/router/router.h"

namespace moesaic::ops {
void router_forward_cpu(const OpContext& c, const RouterForward& args);
void router_forward_cuda(const OpContext& c, const RouterForward& args);
void router_backward_cpu(const OpContext& c, const RouterBackward& args);
void router_backward_cuda(const OpContext& c, const RouterBackward& args);
void router_bias_update_cpu(const OpContext& c, const RouterBiasUpdate& args);
void router_bias_update_cuda(const OpContext& c, const RouterBiasUpdate& args);

/// What CUDA's kernels are made for.
inline constexpr int64_t kMostCudaExperts = 1024;
/// What keeps a sum of sigmoids from being zero.
inline constexpr float kSigmoidSumFloor = 1e-20f;
}  // namespace moesaic::ops
