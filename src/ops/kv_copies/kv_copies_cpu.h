#pragma once
#include "device/op_context.h"
#include "ops/kv_copies/kv_copies.h"

namespace moesaic::ops {
void sum_kv_copies_cpu(const OpContext& c, const SumKvCopies& args);
}
