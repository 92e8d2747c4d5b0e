#pragma once
// The bodies, one per device.
#include "device/op_context.h"
#include "ops/matmul/matmul.h"

namespace moesaic::ops {
void matmul_cpu(const OpContext& c, const Matmul& args);
void matmul_cuda(const OpContext& c, const Matmul& args);
/// Bytes of args.scratch, from types and shapes.
int64_t matmul_scratch(const Program& g, const Matmul& args);
}  // namespace moesaic::ops
