#pragma once
// The bodies, one per device.
#include "device/op_context.h"

namespace moesaic::ops {

struct AddBias {
  Handle x, bias;
};
struct BiasBackward {
  Handle dy, d_bias;
  Handle scratch;  // CUDA's working memory; filled in by the op
};
void add_bias_cpu(const OpContext& c, const AddBias& args);
void add_bias_cuda(const OpContext& c, const AddBias& args);
void bias_backward_cpu(const OpContext& c, const BiasBackward& args);
void bias_backward_cuda(const OpContext& c, const BiasBackward& args);

}  // namespace moesaic::ops
