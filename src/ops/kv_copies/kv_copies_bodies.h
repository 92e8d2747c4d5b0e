#pragma once
// The bodies, one per device.
#include "device/op_context.h"
#include "ops/kv_copies/kv_copies.h"

namespace moesaic::ops {
void sum_kv_copies_cpu(const OpContext& c, const SumKvCopies& args);
void sum_kv_copies_cuda(const OpContext& c, const SumKvCopies& args);
}  // namespace moesaic::ops
