#pragma once
// The mixture-of-experts half of a layer: ln2_in -> RMSNorm -> router -> dispatch -> experts -> combine, plus the shared
// expert, plus the residual.
#include <span>

#include "layers/pass.h"

namespace moesaic {

/// Dense rows (norm, router, shared expert); the caller has begun the layer's dense bucket.
void add_moe_dense_parameters(ParameterTable& table, const ModelConfig& model, const std::string& prefix);
/// w1, w2, w3 of these experts; the caller has begun the layer's expert bucket.
void add_expert_parameters(ParameterTable& table, const ModelConfig& model, const std::string& prefix,
                           std::span<const int64_t> experts);
void add_moe_activations(ActivationTable& table, const LayerSpec& spec);

/// Records the forward half: attn_out and hidden [T, D] -> next [T, D] = ln2_in + experts(ln2_in), ln2_in = hidden +
/// attn_out.
void moe_forward(Pass& p, Handle hidden, Handle attn_out, Handle next);
/// Records the backward half: d_next [T, D] -> d_ln2_in [T, D]. Weight gradients not yet recorded stay in p.queue.
void moe_backward(Pass& p, Handle hidden, Handle d_next, Handle d_ln2_in);

/// The same for a layer whose feed-forward network is dense.
void add_dense_layer_parameters(ParameterTable& table, const ModelConfig& model, const std::string& prefix);
void add_dense_layer_activations(ActivationTable& table, const LayerSpec& spec);
void dense_forward(Pass& p, Handle hidden, Handle attn_out, Handle next);
void dense_backward(Pass& p, Handle hidden, Handle d_next, Handle d_ln2_in);

}  // namespace moesaic
