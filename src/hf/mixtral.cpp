// Mixtral (Jiang et al., arXiv 2401.04088): every layer is MoE, softmax over the K chosen logits.
#include "hf/family_rows.h"

namespace moesaic {

ModelConfig read_mixtral(const HfConfig& c) {
  refuse_biases_and_jitter(c);
  ModelConfig m = read_common(c);
  m.rope_theta = c.rope_theta(1e6);
  m.expert_ffn = c.whole("intermediate_size");
  m.num_experts = c.whole_of_either("num_local_experts", "num_experts");
  m.router.softmax_after_topk = true;
  return m;
}

std::string mixtral_problem(const ModelConfig& m) {
  if (m.qk_norm) return "model.qk_norm must be false";
  if (m.shared_ffn > 0) return "model.shared_ffn must be 0";
  if (m.num_dense_layers > 0) return "model.num_dense_layers must be 0";
  if (!normalizes(m.router)) return "model.router.renormalize must be true";
  return plain_problem(m);
}

void write_mixtral(const ModelConfig& m, nlohmann::json& config) {
  config["head_dim"] = m.head_dim;
  config["intermediate_size"] = m.expert_ffn;
  config["num_local_experts"] = m.num_experts;
  config.erase("num_experts");  // its other name in transformers 5
  config["sliding_window"] = nullptr;
}

}  // namespace moesaic
