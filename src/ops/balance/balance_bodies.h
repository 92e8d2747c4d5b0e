#pragma once
// The bodies, one per device.
#include "device/op_context.h"
#include "ops/balance/balance.h"

namespace moesaic::ops {
void balance_count_cpu(const OpContext& c, const BalanceCount& args);
void balance_count_cuda(const OpContext& c, const BalanceCount& args);
void balance_loss_cpu(const OpContext& c, const BalanceLoss& args);
void balance_loss_cuda(const OpContext& c, const BalanceLoss& args);
void z_loss_cpu(const OpContext& c, const ZLoss& args);
void z_loss_cuda(const OpContext& c, const ZLoss& args);
void capacity_cpu(const OpContext& c, const Capacity& args);
void capacity_cuda(const OpContext& c, const Capacity& args);
void add_counts_cpu(const OpContext& c, const AddCounts& args);
void add_counts_cuda(const OpContext& c, const AddCounts& args);

/// CUDA sums chunks of tokens for each scope apart, and then their sums: this many chunks, and bytes of working memory.
int64_t balance_count_chunks(int64_t num_tokens, int64_t num_scopes);
int64_t balance_count_scratch(int64_t num_tokens, int64_t num_scopes, int64_t num_experts);
/// CUDA cuts the (token, k) that come one after another into chunks of `slots`, and counts each chunk's rows per (scope, group
/// of experts).
struct CapacityChunks {
  int64_t slots, count, num_counters;  // of a chunk; chunks; counters of one chunk
};
CapacityChunks capacity_chunks(const Capacity& args, int64_t num_tokens, int64_t num_kept, int64_t top_k);
}  // namespace moesaic::ops
