#pragma once
// The bodies, one per device.
#include "device/op_context.h"
#include "ops/dispatch_plan/dispatch_plan.h"

namespace moesaic::ops {
void dispatch_plan_cpu(const OpContext& c, const DispatchPlan& args);
void dispatch_plan_cuda(const OpContext& c, const DispatchPlan& args);

/// Of what CUDA keeps in tables of fixed size: experts, local experts and ranks.
inline constexpr int64_t kMostPlanned = 1024;
/// How CUDA cuts the group's tokens, a warp for each chunk: chunks of `tokens` tokens, the last one of a source rank may be
/// smaller; per_rank chunks for each source, count in all.
struct PlanChunks {
  int64_t tokens, per_rank, count;
};
PlanChunks plan_chunks(int64_t e, int64_t tokens_per_rank, int64_t top_k);
/// Bytes of CUDA's working memory.
int64_t dispatch_plan_scratch(const PlanChunks& chunks, int64_t e, int64_t num_local_experts, bool a2a);
}  // namespace moesaic::ops
