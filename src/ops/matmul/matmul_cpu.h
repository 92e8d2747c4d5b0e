#pragma once
#include "device/op_context.h"
#include "ops/matmul/matmul.h"

namespace moesaic::ops {
void matmul_cpu(const OpContext& c, const Matmul& args);
}
