#pragma once
// The router of a MoE layer with everything that hangs on it: load statistics, balance loss, z-loss, capacity.
#include "layers/pass.h"

namespace moesaic {

void add_router_activations(ActivationTable& table, const LayerSpec& spec);

/// What dispatch needs.
struct Routed {
  Handle indices;  // [T, K] i32, -1 where capacity dropped
  Handle weights;  // [T, K] f32
};
/// Records routing of ln2_out [T, D]; statistics go to the layer's LayerStats when training.
Routed router_forward(Pass& p, Handle ln2_out);
/// Records d_ln2_out += what comes back through the router, from d_weights [T, K] f32; its weight gradient too.
void router_backward(Pass& p, Handle ln2_out, Handle d_weights, Handle d_ln2_out);

}  // namespace moesaic
