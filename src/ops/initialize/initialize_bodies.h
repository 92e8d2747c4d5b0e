#pragma once
// The bodies, one per device.
#include "device/op_context.h"
#include "ops/initialize/initialize.h"

namespace moesaic::ops {
void initialize_cpu(const OpContext& c, const Initialize& args);
void initialize_cuda(const OpContext& c, const Initialize& args);
}  // namespace moesaic::ops
