#pragma once
// The bodies, one per device.
#include "device/op_context.h"
#include "ops/grouped_matmul/grouped_matmul.h"

namespace moesaic::ops {

/// The rows of group i: begins[i] .. ends[i], in the order of the groups.
struct GroupRows {
  const int32_t *begins, *ends;
};
inline GroupRows group_rows(const OpContext& c, const GroupedMatmul& args) {
  const int32_t* offsets = c.in<int32_t>(args.offsets);
  if (args.part == GroupedMatmul::Part::all) return {offsets, offsets + 1};
  const int32_t* split = c.in<int32_t>(args.split);
  return args.part == GroupedMatmul::Part::front ? GroupRows{offsets, split} : GroupRows{split, offsets + 1};
}

void grouped_matmul_cpu(const OpContext& c, const GroupedMatmul& args);
void grouped_matmul_cuda(const OpContext& c, const GroupedMatmul& args);
/// Bytes of args.scratch, from types and shapes; 0 when the product is made without tensor cores.
int64_t grouped_matmul_scratch(const Program& g, const GroupedMatmul& args);
void grouped_matmul_weight_grad_cpu(const OpContext& c, const GroupedMatmulWeightGrad& args);
void grouped_matmul_weight_grad_cuda(const OpContext& c, const GroupedMatmulWeightGrad& args);
int64_t grouped_matmul_weight_grad_scratch(const Program& g, const GroupedMatmulWeightGrad& args);

}  // namespace moesaic::ops
