#include "ops/router/router_bodies.h"

namespace moesaic::ops {

void router_bias_update_cpu(const OpContext& c, const RouterBiasUpdate& args) {
  if (*c.in<int32_t>(args.ok) == 0) return;
  const int32_t* counts = c.in<int32_t>(args.counts);
  float* bias = c.inout<float>(args.bias);
  const int64_t E = c.shape(args.counts).numel();
  int64_t total = 0;
  for (int64_t x = 0; x < E; ++x) total += counts[x];
  for (int64_t x = 0; x < E; ++x) {
    const int64_t missing = total - int64_t{counts[x]} * E;
    if (missing > 0) bias[x] += args.rate;
    if (missing < 0) bias[x] -= args.rate;
  }
}

}  // namespace moesaic::ops
