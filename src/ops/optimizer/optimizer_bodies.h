#pragma once
// The bodies, one per device.
#include "device/op_context.h"
#include "ops/optimizer/optimizer.h"

namespace moesaic::ops {
void adamw_cpu(const OpContext& c, const AdamW& args);
void adamw_cuda(const OpContext& c, const AdamW& args);
void sgd_cpu(const OpContext& c, const Sgd& args);
void sgd_cuda(const OpContext& c, const Sgd& args);
}  // namespace moesaic::ops
