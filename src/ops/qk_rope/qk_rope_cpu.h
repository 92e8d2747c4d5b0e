#pragma once
#include "device/op_context.h"
#include "ops/qk_rope/qk_rope.h"

namespace moesaic::ops {
void qk_rope_forward_cpu(const OpContext& c, const QkRopeForward& args);
void qk_rope_backward_cpu(const OpContext& c, const QkRopeBackward& args);
}  // namespace moesaic::ops
