#pragma once
// The bodies, one per device.
#include "device/op_context.h"
#include "ops/rmsnorm/rmsnorm.h"

namespace moesaic::ops {
void rmsnorm_forward_cpu(const OpContext& c, const RmsNormForward& args);
void rmsnorm_forward_cuda(const OpContext& c, const RmsNormForward& args);
void rmsnorm_backward_cpu(const OpContext& c, const RmsNormBackward& args);
void rmsnorm_backward_cuda(const OpContext& c, const RmsNormBackward& args);

/// Blocks of the CUDA body, each of which has rows of dgain's and d_bias's partial sums in scratch.
int64_t rmsnorm_backward_blocks(int64_t num_rows, int64_t width);
}  // namespace moesaic::ops
