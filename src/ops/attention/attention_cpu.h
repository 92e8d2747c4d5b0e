#pragma once
#include "device/op_context.h"
#include "ops/attention/attention.h"

namespace moesaic::ops {
void attention_forward_cpu(const OpContext& c, const AttentionForward& args);
void attention_backward_cpu(const OpContext& c, const AttentionBackward& args);
}  // namespace moesaic::ops
