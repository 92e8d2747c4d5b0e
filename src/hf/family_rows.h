#pragma once
// What the rows of the table of families (family.cpp) are made of: a reader, a reason against and a writer per family.
#include "hf/family.h"

namespace moesaic {

/// What all families share: sizes, norm, tied embedding. Refuses what none of them may have here.
ModelConfig read_common(const HfConfig& config);
void refuse_biases_and_jitter(const HfConfig& config);
void write_common(const ModelConfig& model, nlohmann::json& config);
/// Router features that no family has; empty if they are not used.
std::string router_problem(const RouterConfig& router);
/// Features that Phi-MoE alone has, or no family; empty if the model uses none.
std::string plain_problem(const ModelConfig& model);

ModelConfig read_mixtral(const HfConfig& config);
std::string mixtral_problem(const ModelConfig& model);
void write_mixtral(const ModelConfig& model, nlohmann::json& config);

ModelConfig read_qwen3_moe(const HfConfig& config);
std::string qwen3_moe_problem(const ModelConfig& model);
void write_qwen3_moe(const ModelConfig& model, nlohmann::json& config);

ModelConfig read_deepseek(const HfConfig& config);
std::string deepseek_problem(const ModelConfig& model);
void write_deepseek(const ModelConfig& model, nlohmann::json& config);

ModelConfig read_phimoe(const HfConfig& config);
std::string phimoe_problem(const ModelConfig& model);
void write_phimoe(const ModelConfig& model, nlohmann::json& config);

/// Whether the weights of the chosen experts sum to one.
inline bool normalizes(const RouterConfig& router) {
  return router.softmax_after_topk || router.renormalize;
}

}  // namespace moesaic
