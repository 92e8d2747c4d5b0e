// DeepSeekMoE (Dai et al., arXiv 2401.06066; model_type "deepseek", the 16B model, before multi-head latent attention):
// shared experts, leading dense layers, weights of the chosen experts as the softmax over all E gives them.
#include <fmt/format.h>

#include "hf/family_rows.h"

namespace moesaic {

ModelConfig read_deepseek(const HfConfig& c) {
  refuse_biases_and_jitter(c);
  ModelConfig m = read_common(c);
  m.rope_theta = c.rope_theta(1e4);
  m.expert_ffn = c.whole("moe_intermediate_size");
  m.num_experts = c.whole("n_routed_experts");
  const int64_t shared = c.whole("n_shared_experts", 0);
  constexpr int64_t kMost = int64_t{1}
                            << 20;  // keeps the product below in range; validation has the real bound
  if (shared > kMost) c.refuse("n_shared_experts", fmt::format("expected at most {}", kMost));
  if (m.expert_ffn > kMost) c.refuse("moe_intermediate_size", fmt::format("expected at most {}", kMost));
  m.shared_ffn = shared * m.expert_ffn;  // side by side they are one wide expert
  m.num_dense_layers = c.whole("first_k_dense_replace", 0);
  const int64_t dense_ffn = c.whole("intermediate_size");
  if (m.num_dense_layers > 0) m.dense_ffn = dense_ffn;
  // Their code normalizes only when K > 1.
  m.router.renormalize = c.flag("norm_topk_prob", false) && m.top_k > 1;
  c.must_be("scoring_func", "softmax", "only softmax is supported");
  c.must_be("moe_layer_freq", 1, "every layer after the leading dense ones must be MoE");
  c.must_be("topk_method", "greedy", "only greedy is supported");
  c.must_be("n_group", 1, "groups of experts are not supported in this family");
  c.must_be("topk_group", 1, "groups of experts are not supported in this family");
  return m;
}

std::string deepseek_problem(const ModelConfig& m) {
  if (m.qk_norm) return "model.qk_norm must be false";
  if (m.head_dim * m.num_heads != m.hidden) return "model.head_dim * num_heads must be model.hidden";
  if (m.shared_ffn % m.expert_ffn != 0)
    return "model.shared_ffn must be a multiple of model.expert_ffn (whole shared experts)";
  if (m.top_k == 1 && normalizes(m.router)) return "model.router.renormalize must be false where K = 1";
  return plain_problem(m);
}

void write_deepseek(const ModelConfig& m, nlohmann::json& config) {
  config["moe_intermediate_size"] = m.expert_ffn;
  config["n_routed_experts"] = m.num_experts;
  config["n_shared_experts"] =
      m.shared_ffn > 0 ? nlohmann::json(m.shared_ffn / m.expert_ffn) : nlohmann::json();
  config["first_k_dense_replace"] = m.num_dense_layers;
  config["intermediate_size"] = m.num_dense_layers > 0 ? m.dense_ffn : m.expert_ffn;
  config["norm_topk_prob"] = normalizes(m.router);
  config["scoring_func"] = "softmax";
  config["moe_layer_freq"] = 1;
  config["attention_bias"] = false;
}

}  // namespace moesaic
