#pragma once
// The bodies, one per device.
#include "device/op_context.h"
#include "ops/swiglu/swiglu.h"

namespace moesaic::ops {
void swiglu_forward_cpu(const OpContext& c, const SwigluForward& args);
void swiglu_forward_cuda(const OpContext& c, const SwigluForward& args);
void swiglu_backward_cpu(const OpContext& c, const SwigluBackward& args);
void swiglu_backward_cuda(const OpContext& c, const SwigluBackward& args);
}  // namespace moesaic::ops
