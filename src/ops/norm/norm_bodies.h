#pragma once
// The bodies, one per device.
#include "device/op_context.h"
#include "ops/norm/norm.h"

namespace moesaic::ops {
struct Reduction {
  Handle x, out;
  Handle scratch;  // CUDA's working memory; filled in by the op
};
/// Blocks of the CUDA bodies of a reduction over `count` elements, and what each leaves in scratch.
int64_t reduction_blocks(int64_t count);
constexpr int64_t kReductionPartBytes = 8;

void sum_of_squares_cpu(const OpContext& c, const Reduction& args);
void sum_of_squares_cuda(const OpContext& c, const Reduction& args);
void count_nonfinite_cpu(const OpContext& c, const Reduction& args);
void count_nonfinite_cuda(const OpContext& c, const Reduction& args);
void verdict_cpu(const OpContext& c, const Verdict& args);
void verdict_cuda(const OpContext& c, const Verdict& args);
}  // namespace moesaic::ops
