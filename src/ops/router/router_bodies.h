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
/// The same for the score sparsemixer.
void sparsemixer_forward_cuda(const OpContext& c, const RouterForward& args);
void sparsemixer_backward_cuda(const OpContext& c, const RouterBackward& args);

/// One token under sparsemixer: chosen [2], weights [2]; probs [E] is scratch.
void sparsemixer_forward(const float* logits, int64_t E, float eps, float* probs, int32_t* chosen,
                         float* weights);
/// Adds the gradient through those weights to d_logits [E].
void sparsemixer_backward(const float* logits, int64_t E, float eps, const float* d_weights, float* probs,
                          float* d_logits);

/// What CUDA's kernels are made for.
inline constexpr int64_t kMostCudaExperts = 1024;
/// What keeps a sum of sigmoids from being zero.
inline constexpr float kSigmoidSumFloor = 1e-20f;
}  // namespace moesaic::ops
