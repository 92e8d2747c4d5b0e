#pragma once
// The model families of Hugging Face that Moesaic can read and write: what their config.json says in our terms, and what
// their tensors are called. A family is a row of a table; which one writes a model is found from the model alone.
//
//   ours                          theirs (model.layers.<i>. before each but the first three)
//   embedding, final_norm, head   model.embed_tokens, model.norm, lm_head
//   attention.{norm,q,k,v,o}      input_layernorm, self_attn.{q,k,v,o}_proj
//   attention.{q_norm,k_norm}     self_attn.{q_norm,k_norm}
//   ffn.norm                      post_attention_layernorm
//   moe.router                    <moe>.gate
//   experts.<e>.{w1,w3,w2}        <moe>.experts.<e>.{gate,up,down}
//   shared.{w1,w3,w2}             <moe>.shared_experts.{gate,up,down}
//   dense.{w1,w3,w2}              <moe>.{gate,up,down}
//
// each followed by ".weight", and where ours ends in "_bias" by ".bias". Matrices are [out, in] on both sides and rotary pairs are (i, i + A/2) on both, so no tensor
// is transposed or permuted.
#include <array>
#include <span>
#include <string>
#include <string_view>

#include "config/config.h"
#include "hf/hf_config.h"

namespace moesaic {

struct Family {
  std::string_view model_type;  // "mixtral"
  /// "MixtralForCausalLM"; all are read, the first is written for a folder that is like none.
  std::span<const std::string_view> architectures;
  std::string_view moe;                 // "block_sparse_moe" or "mlp"
  std::array<std::string_view, 3> ffn;  // what w1 (gate), w3 (up) and w2 (down) are called

  /// The model that a config.json describes, apart from its name. Throws ConfigError, naming key and value, for whatever
  /// changes the mathematics and is not supported.
  ModelConfig (*read)(const HfConfig& config);
  /// Why this family cannot say the model; empty if it can.
  std::string (*problem)(const ModelConfig& model);
  /// Adds the family's own keys for a model that it can say.
  void (*write)(const ModelConfig& model, nlohmann::json& config);
};

std::span<const Family> families();

/// The family that a config.json names in model_type. ConfigError naming it and those supported.
const Family& family_of(const HfConfig& config);
/// The first family that can say the model. ConfigError with each family's reason when none can.
const Family& family_for(const ModelConfig& model);

/// The whole model of a config.json: the family's part, validated like any model from outside.
ModelConfig read_model(const Family& family, const HfConfig& config);
/// Their config.json for a model. `like`: an earlier one of the same family whose other keys are kept, and its name of the
/// architecture, which auto_map goes with; null = none.
nlohmann::json write_model(const Family& family, const ModelConfig& model, const nlohmann::json& like);

/// Their name of a parameter: "layers.3.experts.5.w1" -> "model.layers.3.mlp.experts.5.gate_proj.weight".
std::string their_name(const Family& family, std::string_view ours);

}  // namespace moesaic
