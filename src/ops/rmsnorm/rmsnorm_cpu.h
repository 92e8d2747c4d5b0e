#pragma once
#include "device/op_context.h"
#include "ops/rmsnorm/rmsnorm.h"

namespace moesaic::ops {
void rmsnorm_forward_cpu(const OpContext& c, const RmsNormForward& args);
void rmsnorm_backward_cpu(const OpContext& c, const RmsNormBackward& args);
}  // namespace moesaic::ops
