#pragma once
// The attention half of a layer: hidden -> RMSNorm -> QKV -> (q/k norm) RoPE -> head exchange -> attention -> head
// exchange back -> output projection. The residual is added by the RMSNorm that opens the other half.
//
// sp (DeepSpeed-Ulysses: Jacobs et al., 2023): weights are replicated, each rank projects its T tokens; an all-to-all
// gives it the whole sequences for H/n heads, and another gives its tokens back. With G < n a key/value head goes to n/G
// ranks, whose gradients are summed. batch: each rank holds whole sequences, nothing is exchanged.
#include "layers/pass.h"

namespace moesaic {

void add_attention_parameters(ParameterTable& table, const ModelConfig& model, const std::string& prefix);
void add_attention_activations(ActivationTable& table, const LayerSpec& spec);

/// Records the forward half: hidden [T, D] -> attn_out [T, D], a temp.
Handle attention_forward(Pass& p, Handle hidden);
/// In a backward pass: attn_out again, from as much as was kept.
Handle attention_output_again(Pass& p, Handle hidden);
/// Records the backward half: d_ln2_in [T, D], the gradient of hidden + attn_out -> d_hidden [T, D].
void attention_backward(Pass& p, Handle hidden, Handle d_ln2_in, Handle d_hidden);

}  // namespace moesaic
