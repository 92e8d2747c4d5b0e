#pragma once
#include "device/op_context.h"
#include "ops/optimizer/optimizer.h"

namespace moesaic::ops {
void adamw_cpu(const OpContext& c, const AdamW& args);
void sgd_cpu(const OpContext& c, const Sgd& args);
}  // namespace moesaic::ops
