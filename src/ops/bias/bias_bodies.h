#pragma once
// The bodies.
#include "device/op_context.h"

namespace moesaic::ops {

struct AddBias {
  Handle x, bias;
};
struct BiasBackward {
  Handle dy, d_bias;
};
void add_bias_cpu(const OpContext& c, const AddBias& args);
void bias_backward_cpu(const OpContext& c, const BiasBackward& args);

}  // namespace moesaic::ops
