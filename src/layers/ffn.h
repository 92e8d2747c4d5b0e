#pragma once
// A dense SwiGLU feed-forward network: the leading dense layers, and the shared expert of a MoE layer.
#include "layers/pass.h"

namespace moesaic {

/// Rows <name>.w1, .w3 (fused as <name>.w13) and .w2, of width `ffn`.
void add_ffn_parameters(ParameterTable& table, const ModelConfig& model, const std::string& prefix,
                        const std::string& name, int64_t ffn);
/// Rows <name>_h13 and <name>_fc2_in.
void add_ffn_activations(ActivationTable& table, const LayerSpec& spec, const std::string& name, int64_t ffn);

/// x [T, D] -> y [T, D].
void ffn_forward(Pass& p, const std::string& name, int64_t ffn, Handle x, Handle y);
/// d_x [T, D] from d_y [T, D]; weight gradients go to p.queue.
void ffn_backward(Pass& p, const std::string& name, int64_t ffn, Handle x, Handle d_y, Handle d_x);

}  // namespace moesaic
