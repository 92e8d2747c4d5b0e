#pragma once
#include "device/op_context.h"
#include "ops/norm/norm.h"

namespace moesaic::ops {
struct Reduction {
  Handle x, out;
};
void sum_of_squares_cpu(const OpContext& c, const Reduction& args);
void count_nonfinite_cpu(const OpContext& c, const Reduction& args);
void verdict_cpu(const OpContext& c, const Verdict& args);
}  // namespace moesaic::ops
