#pragma once
// The bodies, one per device.
#include "device/op_context.h"
#include "ops/grouped_matmul/grouped_matmul.h"

namespace moesaic::ops {
void grouped_matmul_cpu(const OpContext& c, const GroupedMatmul& args);
void grouped_matmul_cuda(const OpContext& c, const GroupedMatmul& args);
/// Bytes of args.scratch, from types and shapes; 0 when the product is made without tensor cores.
int64_t grouped_matmul_scratch(const Program& g, const GroupedMatmul& args);
void grouped_matmul_weight_grad_cpu(const OpContext& c, const GroupedMatmulWeightGrad& args);
void grouped_matmul_weight_grad_cuda(const OpContext& c, const GroupedMatmulWeightGrad& args);
int64_t grouped_matmul_weight_grad_scratch(const Program& g, const GroupedMatmulWeightGrad& args);
}  // namespace moesaic::ops
