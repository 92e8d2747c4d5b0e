#pragma once
#include "device/op_context.h"
#include "ops/router/router.h"

namespace moesaic::ops {
void router_forward_cpu(const OpContext& c, const RouterForward& args);
void router_backward_cpu(const OpContext& c, const RouterBackward& args);
void router_bias_update_cpu(const OpContext& c, const RouterBiasUpdate& args);

/// What keeps a sum of sigmoids from being zero.
inline constexpr float kSigmoidSumFloor = 1e-20f;
}  // namespace moesaic::ops
