// Qwen3-MoE (Yang et al., arXiv 2505.09388): RMSNorm on each query and key head; leading layers may be dense.
#include <fmt/format.h>

#include "hf/family_rows.h"

namespace moesaic {

ModelConfig read_qwen3_moe(const HfConfig& c) {
  refuse_biases_and_jitter(c);
  ModelConfig m = read_common(c);
  m.rope_theta = c.rope_theta(1e4);
  m.qk_norm = true;
  m.expert_ffn = c.whole("moe_intermediate_size");
  m.num_experts = c.whole_of_either("num_experts", "num_local_experts");
  m.router.renormalize = c.flag("norm_topk_prob", false);
  c.must_be("decoder_sparse_step", 1, "every layer after the leading dense ones must be MoE");
  const auto dense = c.wholes("mlp_only_layers");
  for (size_t i = 0; i < dense.size(); ++i)
    if (dense[i] != static_cast<int64_t>(i))
      c.refuse("mlp_only_layers", "dense layers must be the first ones: 0, 1, ...");
  m.num_dense_layers = static_cast<int64_t>(dense.size());
  const int64_t dense_ffn = c.whole("intermediate_size", 0);
  if (m.num_dense_layers > 0) m.dense_ffn = dense_ffn;
  return m;
}

std::string qwen3_moe_problem(const ModelConfig& m) {
  if (!m.qk_norm) return "model.qk_norm must be true";
  if (m.shared_ffn > 0) return "model.shared_ffn must be 0";
  return plain_problem(m);
}

void write_qwen3_moe(const ModelConfig& m, nlohmann::json& config) {
  config["head_dim"] = m.head_dim;
  config["moe_intermediate_size"] = m.expert_ffn;
  config["num_experts"] = m.num_experts;
  config.erase("num_local_experts");  // what transformers 5 calls it; it reads both
  config["norm_topk_prob"] = normalizes(m.router);
  config["decoder_sparse_step"] = 1;
  config["mlp_only_layers"] = nlohmann::json::array();
  for (int64_t i = 0; i < m.num_dense_layers; ++i) config["mlp_only_layers"].push_back(i);
  if (m.num_dense_layers > 0) config["intermediate_size"] = m.dense_ffn;
  config["attention_bias"] = false;
  config["use_sliding_window"] = false;
}

}  // namespace moesaic
