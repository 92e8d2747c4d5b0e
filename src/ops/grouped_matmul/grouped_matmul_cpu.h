#pragma once
#include "device/op_context.h"
#include "ops/grouped_matmul/grouped_matmul.h"

namespace moesaic::ops {
void grouped_matmul_cpu(const OpContext& c, const GroupedMatmul& args);
void grouped_matmul_weight_grad_cpu(const OpContext& c, const GroupedMatmulWeightGrad& args);
}  // namespace moesaic::ops
