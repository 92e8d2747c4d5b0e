#pragma once
// The bodies, one per device.
#include "device/op_context.h"
#include "ops/elementwise/elementwise.h"

namespace moesaic::ops {

struct Zero {
  Handle y;
};
struct Copy {
  Handle x, y;
};
struct Add {
  Handle a, b, y;
};
void zero_cpu(const OpContext& c, const Zero& args);
void zero_cuda(const OpContext& c, const Zero& args);
void copy_cpu(const OpContext& c, const Copy& args);
void copy_cuda(const OpContext& c, const Copy& args);
void add_cpu(const OpContext& c, const Add& args);
void add_cuda(const OpContext& c, const Add& args);
void sum_parts_cpu(const OpContext& c, const SumParts& args);
void sum_parts_cuda(const OpContext& c, const SumParts& args);

}  // namespace moesaic::ops
