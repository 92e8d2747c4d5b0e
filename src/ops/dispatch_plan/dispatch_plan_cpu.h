#pragma once
#include "device/op_context.h"
#include "ops/dispatch_plan/dispatch_plan.h"

namespace moesaic::ops {
void dispatch_plan_cpu(const OpContext& c, const DispatchPlan& args);
}
