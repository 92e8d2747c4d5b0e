#pragma once
#include "device/op_context.h"
#include "ops/balance/balance.h"

namespace moesaic::ops {
void balance_count_cpu(const OpContext& c, const BalanceCount& args);
void balance_loss_cpu(const OpContext& c, const BalanceLoss& args);
void z_loss_cpu(const OpContext& c, const ZLoss& args);
void capacity_cpu(const OpContext& c, const Capacity& args);
void add_counts_cpu(const OpContext& c, const AddCounts& args);
}  // namespace moesaic::ops
