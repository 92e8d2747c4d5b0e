#pragma once
// The bodies, one per device.
#include "device/op_context.h"
#include "ops/rows/rows.h"

namespace moesaic::ops {
void gather_rows_cpu(const OpContext& c, const GatherRows& args);
void gather_rows_cuda(const OpContext& c, const GatherRows& args);
void sum_rows_cpu(const OpContext& c, const SumRows& args);
void sum_rows_cuda(const OpContext& c, const SumRows& args);
}  // namespace moesaic::ops
