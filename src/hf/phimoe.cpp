// Phi-3.5-MoE (Abdin et al., arXiv 2404.14219): LayerNorm, biases in attention and head, routing by SparseMixer, LongRoPE.
// Routing is the deterministic one of inference, in training as well: the noise that transformers adds there is not.
#include <fmt/format.h>

#include "hf/family_rows.h"

namespace moesaic {
namespace {

using nlohmann::json;

std::vector<double> numbers(const HfConfig& c, const char* key, const json& rope, const char* name) {
  std::vector<double> values;
  if (!rope.contains(name) || !rope[name].is_array()) c.refuse(key, fmt::format("expected a list {}", name));
  for (const json& value : rope[name]) {
    if (!value.is_number()) c.refuse(key, fmt::format("expected numbers in {}", name));
    values.push_back(value.get<double>());
  }
  return values;
}

double number(const HfConfig& c, const char* key, const json& rope, const char* name) {
  if (!rope.contains(name) || !rope[name].is_number())
    c.refuse(key, fmt::format("expected a number {}", name));
  return rope[name].get<double>();
}

/// rope_scaling, or rope_parameters as transformers 5 writes it, if it says longrope.
void read_rope(const HfConfig& c, ModelConfig& m) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (!c.has(key) || !c.object()[key].is_object()) continue;
    const json& rope = c.object()[key];
    if (rope.value("rope_type", rope.value("type", json())) != json("longrope")) continue;
    if (rope.value("partial_rotary_factor", json(1.0)) != json(1.0))
      c.refuse(key, "rotary positions turn whole heads here");
    c.understand(key);
    c.understand("original_max_position_embeddings");
    m.rope_theta =
        rope.contains("rope_theta") ? number(c, key, rope, "rope_theta") : c.number("rope_theta", 1e6);
    m.long_rope.short_factors = numbers(c, key, rope, "short_factor");
    m.long_rope.long_factors = numbers(c, key, rope, "long_factor");
    m.long_rope.short_scale = number(c, key, rope, "short_mscale");
    m.long_rope.long_scale = number(c, key, rope, "long_mscale");
    const char* length = "original_max_position_embeddings";
    m.long_rope.original_len =
        rope.contains(length) ? HfConfig(rope, c.path()).whole(length) : c.whole(length);
    return;
  }
  m.rope_theta = c.rope_theta(1e6);
}

}  // namespace

ModelConfig read_phimoe(const HfConfig& c) {
  ModelConfig m = read_common(c);
  read_rope(c, m);
  m.layer_norm = true;
  m.attention_bias = c.flag("attention_bias", false);
  m.head_bias = c.flag("lm_head_bias", false);
  m.expert_ffn = c.whole("intermediate_size");
  m.num_experts = c.whole_of_either("num_local_experts", "num_experts");
  m.router.score = ScoreFunction::sparsemixer;
  m.router.renormalize = false;
  m.router.sparsemixer_eps = c.number("router_jitter_noise", 0.01);
  c.understand("input_jitter_noise");  // in training only
  c.must_be("hidden_dropout", 0.0, "dropout is not supported; set it to 0 to train without");
  return m;
}

std::string phimoe_problem(const ModelConfig& m) {
  if (!m.layer_norm) return "model.layer_norm must be true";
  if (m.router.score != ScoreFunction::sparsemixer) return "model.router.score must be sparsemixer";
  if (m.qk_norm) return "model.qk_norm must be false";
  if (m.shared_ffn > 0) return "model.shared_ffn must be 0";
  if (m.num_dense_layers > 0) return "model.num_dense_layers must be 0";
  return router_problem(m.router);
}

void write_phimoe(const ModelConfig& m, json& config) {
  config["head_dim"] = m.head_dim;
  config["intermediate_size"] = m.expert_ffn;
  config["num_local_experts"] = m.num_experts;
  config.erase("num_experts");  // its other name in transformers 5
  config["attention_bias"] = m.attention_bias;
  config["lm_head_bias"] = m.head_bias;
  config["router_jitter_noise"] = m.router.sparsemixer_eps;
  config["sliding_window"] = nullptr;
  const LongRopeConfig& l = m.long_rope;
  if (l.original_len == 0) return;
  config["rope_scaling"] = {{"type", "longrope"},
                            {"short_factor", l.short_factors},
                            {"long_factor", l.long_factors},
                            {"short_mscale", l.short_scale},
                            {"long_mscale", l.long_scale},
                            {"original_max_position_embeddings", l.original_len}};
  config["original_max_position_embeddings"] = l.original_len;
}

}  // namespace moesaic
