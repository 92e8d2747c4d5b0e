#pragma once
// The bodies, one per device.
#include "device/op_context.h"
#include "ops/attention/attention.h"

namespace moesaic::ops {
void attention_forward_cpu(const OpContext& c, const AttentionForward& args);
void attention_forward_cuda(const OpContext& c, const AttentionForward& args);
/// Bytes of args.scratch. Asks cuDNN, so only for programs of a CUDA device, and on the thread of that device.
int64_t attention_forward_scratch(const Program& g, const AttentionForward& args);
void attention_backward_cpu(const OpContext& c, const AttentionBackward& args);
void attention_backward_cuda(const OpContext& c, const AttentionBackward& args);
int64_t attention_backward_scratch(const Program& g, const AttentionBackward& args);
}  // namespace moesaic::ops
