#pragma once
#include "device/op_context.h"

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
struct SumCopies {
  Handle x, y;
  int64_t num_copies;
};
void zero_cpu(const OpContext& c, const Zero& args);
void copy_cpu(const OpContext& c, const Copy& args);
void add_cpu(const OpContext& c, const Add& args);
void sum_copies_cpu(const OpContext& c, const SumCopies& args);

}  // namespace moesaic::ops
