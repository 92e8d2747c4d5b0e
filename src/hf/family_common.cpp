#include <fmt/format.h>

#include <cmath>

#include "hf/family_rows.h"

namespace moesaic {
namespace {

void refuse_what_is_not_built(const HfConfig& c) {
  if (c.has("quantization_config"))
    c.refuse("quantization_config", "quantized weights are not supported; convert the original ones");
  const std::string act = c.text("hidden_act", "silu");
  if (act != "silu" && act != "swish") c.refuse("hidden_act", "only silu is supported");
  c.must_be("mlp_bias", false, "biases of the experts are not supported");
  c.must_be("partial_rotary_factor", 1.0, "rotary positions turn whole heads here");
  // Noise that transformers adds in training only; a config that asks for it gets a plain model elsewhere too.
  c.must_be("attention_dropout", 0.0, "dropout is not supported; set it to 0 to train without");
  c.understand("layer_types");
  if (c.has("layer_types"))
    for (const auto& type : c.object()["layer_types"])
      if (type != "full_attention") c.refuse("layer_types", "only full_attention is supported");
}

// Keys of other architectures that change the mathematics where they are obeyed. The families here have none of them: in
// their config.json they mean a changed model, or nothing when the value is neutral.

/// Factors on embeddings, residuals, expert outputs or logits: 1 changes nothing.
constexpr const char* kFactors[]{"logit_scale",         "logits_scaling",       "output_multiplier_scale",
                                 "scale_emb",           "embedding_multiplier", "embedding_multiplier_scale",
                                 "residual_multiplier", "lm_head_multiplier",   "routed_scaling_factor",
                                 "rotary_pct"};

/// Bounds, gates, other kinds of attention, of norms or of blocks: false or null changes nothing.
constexpr const char* kFeatures[]{"final_logit_softcapping",
                                  "attn_logit_softcapping",
                                  "logits_soft_cap",
                                  "output_logit_soft_cap",
                                  "router_logit_softcapping",
                                  "clip_qkv",
                                  "swiglu_limit",
                                  "attention_chunk_size",
                                  "alibi",
                                  "use_alibi",
                                  "attn_output_gate",
                                  "qk_layernorm",
                                  "use_parallel_residual",
                                  "parallel_attn",
                                  "rope_interleave",
                                  "use_mla"};

void refuse_what_others_compute(const HfConfig& c, const ModelConfig& m) {
  for (const char* key : kFactors)
    c.must_be(key, 1.0, "a factor that this family does not have; only 1 is supported");
  for (const char* key : kFeatures)
    c.must_be(key, false, "a feature that this family does not have; only null or false is supported");
  // Other scales of the scores than 1 / sqrt(head_dim), of a residual than 1, of the logits than 1.
  c.must_be("query_pre_attn_scalar", m.head_dim, "only the value of head_dim is supported");
  c.must_be("attention_multiplier", 1 / std::sqrt(static_cast<double>(m.head_dim)),
            "only 1 / sqrt(head_dim) is supported");
  c.must_be("scale_depth", std::sqrt(static_cast<double>(m.num_layers)),
            "only sqrt(num_hidden_layers) is supported");
  c.must_be("dim_model_base", m.hidden, "only the value of hidden_size is supported");
}

/// A window that is shorter than what the model sees would change attention.
void refuse_window(const HfConfig& c) {
  c.understand("sliding_window");
  const bool used = c.flag("use_sliding_window", true);
  if (!used || !c.has("sliding_window")) return;
  if (c.whole("sliding_window") < c.whole("max_position_embeddings", 0) || !c.has("max_position_embeddings"))
    c.refuse("sliding_window", "sliding-window attention is not supported");
}

}  // namespace

void refuse_biases_and_jitter(const HfConfig& c) {
  c.must_be("attention_bias", false, "biases are not supported in this family");
  c.must_be("lm_head_bias", false, "biases are not supported in this family");
  c.must_be("router_jitter_noise", 0.0, "jitter of the router's input is not supported; set it to 0");
}

ModelConfig read_common(const HfConfig& c) {
  refuse_what_is_not_built(c);
  refuse_window(c);
  ModelConfig m;
  m.num_layers = c.whole("num_hidden_layers");
  m.hidden = c.whole("hidden_size");
  m.num_heads = c.whole("num_attention_heads");
  m.num_kv_heads = c.whole("num_key_value_heads", m.num_heads);
  if (m.num_heads == 0) c.refuse("num_attention_heads", "expected at least 1");
  if (!c.has("head_dim") && m.hidden % m.num_heads != 0)
    c.refuse("num_attention_heads", fmt::format("does not divide hidden_size = {}", m.hidden));
  m.head_dim = c.whole("head_dim", m.hidden / m.num_heads);
  refuse_what_others_compute(c, m);
  m.vocab = c.whole("vocab_size");
  m.top_k = c.whole("num_experts_per_tok");
  m.norm_eps = c.number("rms_norm_eps");
  m.init_std = c.number("initializer_range", m.init_std);
  m.tied_embedding = c.flag("tie_word_embeddings", false);
  return m;
}

void write_common(const ModelConfig& m, nlohmann::json& config) {
  config["num_hidden_layers"] = m.num_layers;
  config["hidden_size"] = m.hidden;
  config["num_attention_heads"] = m.num_heads;
  config["num_key_value_heads"] = m.num_kv_heads;
  config["vocab_size"] = m.vocab;
  config["num_experts_per_tok"] = m.top_k;
  config["rms_norm_eps"] = m.norm_eps;
  config["tie_word_embeddings"] = m.tied_embedding;
  config["hidden_act"] = "silu";
  // transformers 5 writes the base inside rope_parameters and reads either form, earlier versions know rope_theta alone.
  config["rope_theta"] = m.rope_theta;
  config.erase("rope_parameters");
  config.erase("rope_scaling");
  config.erase("layer_types");  // one entry per layer, all full_attention: what is assumed without it
}

std::string plain_problem(const ModelConfig& m) {
  if (m.layer_norm) return "model.layer_norm must be false";
  if (m.attention_bias || m.head_bias) return "model.attention_bias and model.head_bias must be false";
  if (m.long_rope.original_len > 0) return "model.long_rope must not be used";
  if (m.router.score != ScoreFunction::softmax) return "model.router.score must be softmax";
  return router_problem(m.router);
}

std::string router_problem(const RouterConfig& r) {
  if (r.num_groups_kept != r.num_groups) return "model.router.num_groups_kept must be num_groups";
  if (r.force_balance) return "model.router.force_balance must be false";
  if (r.selection_bias) return "model.router.selection_bias must be false";
  if (r.weight_scale != 1) return "model.router.weight_scale must be 1";
  return "";
}

}  // namespace moesaic
