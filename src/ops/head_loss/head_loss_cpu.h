#pragma once
#include "device/op_context.h"
#include "ops/head_loss/head_loss.h"

namespace moesaic::ops {
void head_loss_cpu(const OpContext& c, const HeadLoss& args);
}  // namespace moesaic::ops
