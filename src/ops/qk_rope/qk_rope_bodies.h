#pragma once
// The bodies, one per device.
#include "device/op_context.h"
#include "ops/qk_rope/qk_rope.h"

namespace moesaic::ops {
void qk_rope_forward_cpu(const OpContext& c, const QkRopeForward& args);
void qk_rope_forward_cuda(const OpContext& c, const QkRopeForward& args);
void qk_rope_backward_cpu(const OpContext& c, const QkRopeBackward& args);
void qk_rope_backward_cuda(const OpContext& c, const QkRopeBackward& args);

/// Blocks of the CUDA body, each of which has partial sums of both gains' gradients in scratch.
int64_t qk_rope_backward_blocks(int64_t num_rows);
}  // namespace moesaic::ops
