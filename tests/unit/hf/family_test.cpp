// config.json to a model and back, and the names of tensors.
#include "hf/family.h"

#include <gmock/gmock.h>

#include <cmath>

#include "base/error.h"
#include "config/print.h"
#include "config/shapes.h"
#include "support/hf_model.h"
#include "support/thrown.h"

namespace moesaic::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// The model as text, apart from its name.
std::string text(ModelConfig model) {
  Config config;
  config.model = std::move(model);
  config.model.name = "x";
  return print_config(config);
}

json with(json config, const std::string& key, const json& value) {
  config[key] = value;
  return config;
}

// The sizes that the authors of each model publish in its config.json.
TEST(Family, ReadsThePublishedMixtral) {
  json config = mixtral_json();
  config.update({{"hidden_size", 4096},
                 {"intermediate_size", 14336},
                 {"num_attention_heads", 32},
                 {"num_hidden_layers", 32},
                 {"num_key_value_heads", 8},
                 {"num_local_experts", 8},
                 {"max_position_embeddings", 32768},
                 {"vocab_size", 32000}});
  EXPECT_EQ(text(model_of(config)), text(model_shape("mixtral-8x7b")));
}

TEST(Family, ReadsThePublishedQwen3) {
  json config = qwen3_moe_json();
  config.update({{"head_dim", 128},
                 {"hidden_size", 2048},
                 {"intermediate_size", 6144},
                 {"moe_intermediate_size", 768},
                 {"num_attention_heads", 32},
                 {"num_experts", 128},
                 {"num_experts_per_tok", 8},
                 {"num_hidden_layers", 48},
                 {"num_key_value_heads", 4},
                 {"vocab_size", 151936},
                 {"max_position_embeddings", 40960}});
  EXPECT_EQ(text(model_of(config)), text(model_shape("qwen3-30b-a3b")));
}

TEST(Family, ReadsThePublishedDeepseek) {
  json config = deepseek_json();
  config.update({{"hidden_size", 2048},
                 {"intermediate_size", 10944},
                 {"moe_intermediate_size", 1408},
                 {"n_routed_experts", 64},
                 {"num_attention_heads", 16},
                 {"num_experts_per_tok", 6},
                 {"num_hidden_layers", 28},
                 {"num_key_value_heads", 16},
                 {"vocab_size", 102400}});
  EXPECT_EQ(text(model_of(config)), text(model_shape("deepseek-moe-16b")));
}

// Phi-3.5-MoE was published with its own code, which names the class otherwise than transformers does. The lists of factors are
// made up; their length is the published one.
json published_phi() {
  json config = phimoe_json();
  json short_factors = json::array(), long_factors = json::array();
  for (int i = 0; i < 64; ++i) {
    short_factors.push_back(1 + i / 64.0);
    long_factors.push_back(1 + i);
  }
  config.update({{"architectures", {"PhiMoEForCausalLM"}},
                 {"auto_map",
                  {{"AutoConfig", "configuration_phimoe.PhiMoEConfig"},
                   {"AutoModelForCausalLM", "modeling_phimoe.PhiMoEForCausalLM"}}},
                 {"bos_token_id", 1},
                 {"eos_token_id", 32000},
                 {"hidden_dropout", 0.0},
                 {"hidden_size", 4096},
                 {"initializer_range", 0.02},
                 {"intermediate_size", 6400},
                 {"max_position_embeddings", 131072},
                 {"num_attention_heads", 32},
                 {"num_hidden_layers", 32},
                 {"num_key_value_heads", 8},
                 {"num_local_experts", 16},
                 {"original_max_position_embeddings", 4096},
                 {"output_router_logits", false},
                 {"rope_scaling",
                  {{"long_factor", long_factors},
                   {"long_mscale", 1.243163121016122},
                   {"original_max_position_embeddings", 4096},
                   {"short_factor", short_factors},
                   {"short_mscale", 1.243163121016122},
                   {"type", "longrope"}}},
                 {"router_aux_loss_coef", 0.0},
                 {"sliding_window", 131072},
                 {"torch_dtype", "bfloat16"},
                 {"transformers_version", "4.43.3"},
                 {"use_cache", true},
                 {"vocab_size", 32064}});
  return config;
}

TEST(Family, ReadsThePublishedPhi) {
  ModelConfig expected = model_shape("phi-3.5-moe");  // sizes alone
  expected.layer_norm = expected.attention_bias = expected.head_bias = true;
  expected.router = {.score = ScoreFunction::sparsemixer, .renormalize = false, .sparsemixer_eps = 0.01};
  expected.rope_theta = 1e4;
  LongRopeConfig& rope = expected.long_rope;
  rope.original_len = 4096;
  rope.short_scale = rope.long_scale = 1.243163121016122;
  for (int i = 0; i < 64; ++i) {
    rope.short_factors.push_back(1 + i / 64.0);
    rope.long_factors.push_back(1 + i);
  }
  const HfConfig config = parsed(published_phi());
  EXPECT_EQ(text(read_model(family_of(config), config)), text(expected));
  EXPECT_THAT(config.not_understood(), IsEmpty());
}

TEST(Family, WritesTheArchitectureOfTheFolderThatItIsLike) {
  const json published = published_phi();
  const ModelConfig model = model_of(published);
  const json like = write_model(family_for(model), model, published);
  for (const char* key : {"architectures", "auto_map", "rope_scaling"})
    EXPECT_EQ(like[key], published[key]) << key;
  EXPECT_EQ(write_model(family_for(model), model, {})["architectures"], json::array({"PhimoeForCausalLM"}));
  EXPECT_EQ(write_model(family_for(model), model,
                        with(published, "architectures", {"PhimoeModel"}))["architectures"],
            json::array({"PhimoeForCausalLM"}));
}

TEST(Family, WritesWhatItReadsForEachFamily) {
  for (const json& config : {mixtral_json(), qwen3_moe_json(), deepseek_json(), phimoe_json()}) {
    const ModelConfig model = model_of(config);
    const Family& family = family_for(model);
    EXPECT_EQ(family.model_type, config["model_type"].get<std::string>());
    EXPECT_EQ(text(model_of(write_model(family, model, {}))), text(model));
    const json like = write_model(family, model, config);
    EXPECT_EQ(text(model_of(like)), text(model));
    EXPECT_EQ(like.value("router_aux_loss_coef", 0.0), config.value("router_aux_loss_coef", 0.0));
  }
}

TEST(Family, ReadsWhatVersionFiveWrites) {
  json config = mixtral_json();
  config.erase("rope_theta");
  config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 5e5}};
  config["layer_types"] = {"full_attention", "full_attention"};
  EXPECT_EQ(model_of(config).rope_theta, 5e5);
}

// The files were written by save_pretrained of transformers 5.24 for models of these sizes.
TEST(Family, ReadsFilesThatVersionFiveWrote) {
  struct Case {
    const char* name;
    json same;  // what an earlier version writes for the same model
  };
  json qwen3_moe = qwen3_moe_json(), phimoe = phimoe_json();
  qwen3_moe.erase("max_window_layers");
  for (const auto& [name, same] :
       {Case{"mixtral", mixtral_json()}, Case{"qwen3_moe", qwen3_moe}, Case{"phimoe", phimoe}}) {
    const HfConfig config =
        HfConfig::read(fmt::format("{}/tests/fuzz/seeds/hf_config/{}_v5.json", MOESAIC_SOURCE_DIR, name));
    const Family& family = family_of(config);
    EXPECT_EQ(family.model_type, name);
    const ModelConfig model = read_model(family, config);
    EXPECT_EQ(text(model), text(model_of(same)));
    EXPECT_THAT(config.not_understood(), IsEmpty()) << name;
    const json written = write_model(family, model, config.object());
    EXPECT_EQ(text(model_of(written)), text(model));
    EXPECT_NE(written.contains("num_experts"), written.contains("num_local_experts")) << name;
    EXPECT_FALSE(written.contains("rope_parameters")) << name;
  }
}

TEST(Family, ReadsTheNumberOfExpertsByEitherName) {
  const std::pair<json, const char*> both_names[] = {{qwen3_moe_json(), "num_experts"},
                                                     {qwen3_moe_json(), "num_local_experts"},
                                                     {mixtral_json(), "num_experts"},
                                                     {phimoe_json(), "num_experts"}};
  for (auto [config, name] : both_names) {
    for (const char* either : {"num_experts", "num_local_experts"}) config.erase(either);
    EXPECT_THAT(message_of([&, &c = config] { model_of(c); }),
                AllOf(HasSubstr("num_experts"), HasSubstr("num_local_experts"), HasSubstr("missing")));
    EXPECT_EQ(model_of(with(config, name, 4)).num_experts, 4);
    config["num_experts"] = config["num_local_experts"] = 4;
    EXPECT_EQ(model_of(config).num_experts, 4);
    config[name] = 3;
    EXPECT_THAT(
        message_of([&, &c = config] { model_of(c); }),
        AllOf(HasSubstr("num_experts = "), HasSubstr("num_local_experts"), HasSubstr("= 3"), HasSubstr("4")));
  }
}

// An export in the likeness of a folder whose sizes have changed since: no key may tell of the old ones by another name.
TEST(Family, WritesNoStaleTwinOfAKey) {
  for (json like : {mixtral_json(), qwen3_moe_json(), phimoe_json()}) {
    const ModelConfig model = model_of(like);
    like["num_experts"] = like["num_local_experts"] = 64;
    like["layer_types"] = {"full_attention", "full_attention", "full_attention"};
    like["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 5}};
    const json written = write_model(family_for(model), model, like);
    EXPECT_EQ(text(model_of(written)), text(model));
    EXPECT_FALSE(written.contains("layer_types"));
  }
}

TEST(Family, TakesDefaultsWhereKeysAreMissing) {
  json config = qwen3_moe_json();
  for (const char* key : {"rope_theta", "norm_topk_prob", "num_key_value_heads", "head_dim", "hidden_act"})
    config.erase(key);
  const ModelConfig model = model_of(config);
  EXPECT_EQ(model.rope_theta, 1e4);
  EXPECT_FALSE(model.router.renormalize);
  EXPECT_EQ(model.num_kv_heads, 4);
  EXPECT_EQ(model.head_dim, 4);
}

TEST(Family, ReadsLayerNormBiasesAndLongRopeOfPhi) {
  const ModelConfig model = model_of(phimoe_json());
  EXPECT_TRUE(model.layer_norm && model.attention_bias && model.head_bias);
  EXPECT_EQ(model.router.score, ScoreFunction::sparsemixer);
  EXPECT_EQ(model.router.sparsemixer_eps, 0.01);
  EXPECT_EQ(model.long_rope.original_len, 16);
  EXPECT_THAT(model.long_rope.short_factors, ElementsAre(1.0, 1.25));
  EXPECT_THAT(model.long_rope.long_factors, ElementsAre(1.5, 4.0));
  EXPECT_EQ(model.long_rope.short_scale, 1.125);
  EXPECT_EQ(model.long_rope.long_scale, 1.25);
  json five = phimoe_json();
  five["rope_parameters"] = five["rope_scaling"];
  five["rope_parameters"]["rope_type"] = "longrope";
  five["rope_parameters"]["rope_theta"] = 1e4;
  for (const char* key : {"rope_scaling", "rope_theta"}) five.erase(key);
  five["rope_parameters"].erase("type");
  EXPECT_EQ(text(model_of(five)), text(model));
}

TEST(Family, ReadsLeadingDenseLayersOfQwen3) {
  const ModelConfig model = model_of(with(qwen3_moe_json(), "mlp_only_layers", {0}));
  EXPECT_EQ(model.num_dense_layers, 1);
  EXPECT_EQ(model.dense_ffn, 40);
  EXPECT_EQ(write_model(family_for(model), model, {})["mlp_only_layers"], json::array({0}));
}

TEST(Family, RefusesByNameAndValueWhatWouldChangeTheModel) {
  struct Case {
    json config;
    const char *key, *value;
  };
  const Case cases[] = {
      {with(mixtral_json(), "hidden_act", "gelu"), "hidden_act", "\"gelu\""},
      {with(mixtral_json(), "sliding_window", 32), "sliding_window", "32"},
      {with(mixtral_json(), "quantization_config", {{"bits", 4}}), "quantization_config", "4"},
      {with(mixtral_json(), "attention_dropout", 0.1), "attention_dropout", "0.1"},
      {with(mixtral_json(), "router_jitter_noise", 0.01), "router_jitter_noise", "0.01"},
      {with(mixtral_json(), "partial_rotary_factor", 0.5), "partial_rotary_factor", "0.5"},
      {with(mixtral_json(), "layer_types", {"sliding_attention"}), "layer_types", "sliding_attention"},
      {with(mixtral_json(), "num_hidden_layers", "two"), "num_hidden_layers", "\"two\""},
      {with(mixtral_json(), "num_hidden_layers", -1), "num_hidden_layers", "-1"},
      {with(mixtral_json(), "num_hidden_layers", 1.5), "num_hidden_layers", "1.5"},
      {with(mixtral_json(), "num_attention_heads", 0), "num_attention_heads", "0"},
      {with(mixtral_json(), "num_attention_heads", 3), "num_attention_heads", "3"},
      {with(mixtral_json(), "architectures", {"MixtralForSequenceClassification"}), "architectures",
       "SequenceClassification"},
      {with(phimoe_json(), "architectures", {"PhiForCausalLM"}), "architectures", "PhiMoEForCausalLM"},
      {with(phimoe_json(), "architectures", {"PhimoeForCausalLM", "PhiMoEForCausalLM"}), "architectures",
       "PhiMoEForCausalLM"},
      {with(qwen3_moe_json(), "attention_bias", true), "attention_bias", "true"},
      {with(qwen3_moe_json(), "use_sliding_window", true), "sliding_window", "8"},
      {with(qwen3_moe_json(), "decoder_sparse_step", 2), "decoder_sparse_step", "2"},
      {with(qwen3_moe_json(), "mlp_only_layers", {1}), "mlp_only_layers", "[1]"},
      {with(qwen3_moe_json(), "rope_scaling", {{"rope_type", "yarn"}, {"factor", 4.0}}), "rope_scaling",
       "yarn"},
      {with(qwen3_moe_json(), "rope_parameters", {{"rope_type", "default"}, {"partial_rotary_factor", 0.25}}),
       "rope_parameters", "0.25"},
      {with(deepseek_json(), "scoring_func", "sigmoid"), "scoring_func", "sigmoid"},
      {with(deepseek_json(), "moe_layer_freq", 2), "moe_layer_freq", "2"},
      {with(deepseek_json(), "routed_scaling_factor", 2.5), "routed_scaling_factor", "2.5"},
      {with(deepseek_json(), "topk_method", "group_limited_greedy"), "topk_method", "group_limited_greedy"},
      {with(deepseek_json(), "n_group", 8), "n_group", "8"},
      {with(deepseek_json(), "n_shared_experts", int64_t{1} << 62), "n_shared_experts",
       "4611686018427387904"},
      {with(phimoe_json(), "rope_scaling", {{"type", "longrope"}, {"short_factor", {1}}}), "rope_scaling",
       "long_factor"},
      {with(phimoe_json(), "rope_scaling", {{"type", "su"}}), "rope_scaling", "su"},
      {with(mixtral_json(), "logit_scale", 0.5), "logit_scale", "0.5"},
      {with(qwen3_moe_json(), "final_logit_softcapping", 30.0), "final_logit_softcapping", "30"},
      {with(phimoe_json(), "attn_logit_softcapping", 50), "attn_logit_softcapping", "50"},
      {with(mixtral_json(), "embedding_multiplier", 12), "embedding_multiplier", "12"},
      {with(qwen3_moe_json(), "residual_multiplier", 0.22), "residual_multiplier", "0.22"},
      {with(mixtral_json(), "attention_multiplier", 1.0), "attention_multiplier", "1.0"},
      {with(mixtral_json(), "logits_scaling", 16), "logits_scaling", "16"},
      {with(deepseek_json(), "scale_emb", 12), "scale_emb", "12"},
      {with(deepseek_json(), "scale_depth", 1.4), "scale_depth", "1.4"},
      {with(deepseek_json(), "dim_model_base", 256), "dim_model_base", "256"},
      {with(qwen3_moe_json(), "query_pre_attn_scalar", 256), "query_pre_attn_scalar", "256"},
      {with(qwen3_moe_json(), "routed_scaling_factor", 2.5), "routed_scaling_factor", "2.5"},
      {with(qwen3_moe_json(), "clip_qkv", 8.0), "clip_qkv", "8.0"},
      {with(qwen3_moe_json(), "attn_output_gate", true), "attn_output_gate", "true"},
      {with(phimoe_json(), "num_experts_per_tok", 1), "top_k", "found 1"},
      {with(mixtral_json(), "lm_head_bias", true), "lm_head_bias", "true"},
      {with(mixtral_json(), "vocab_size", int64_t{1} << 40), "vocab", "1099511627776"},
      {with(mixtral_json(), "num_experts_per_tok", 5), "top_k", "5"},
  };
  for (const Case& c : cases)
    EXPECT_THAT(message_of([&] { model_of(c.config); }),
                AllOf(HasSubstr("config.json"), HasSubstr(c.key), HasSubstr(c.value)));
}

TEST(Family, TakesKeysOfOthersWhoseValueIsNeutral) {
  json neutral = mixtral_json();
  neutral.update({{"logit_scale", 1},
                  {"embedding_multiplier", 1.0},
                  {"routed_scaling_factor", nullptr},
                  {"final_logit_softcapping", nullptr},
                  {"attn_output_gate", false},
                  {"query_pre_attn_scalar", 4},     // head_dim
                  {"attention_multiplier", 0.5},    // 1 / sqrt(head_dim)
                  {"dim_model_base", 16},           // hidden_size
                  {"scale_depth", std::sqrt(2)}});  // of layers
  const HfConfig config = parsed(neutral);
  EXPECT_EQ(text(read_model(family_of(config), config)), text(model_of(mixtral_json())));
  EXPECT_THAT(config.not_understood(), IsEmpty());
}

// DeepSeek's own code makes heads of hidden / heads, whatever head_dim says. Found by fuzzing.
TEST(Family, RefusesAKeyThatItsOwnCodeWouldNotRead) {
  EXPECT_THAT(message_of<ConfigError>([] { model_of(with(deepseek_json(), "head_dim", 8)); }),
              HasSubstr("head_dim * num_heads must be model.hidden"));
  EXPECT_EQ(model_of(with(deepseek_json(), "head_dim", 4)).head_dim, 4);
}

TEST(Family, NamesAnUnknownFamilyAndTheKnownOnes) {
  EXPECT_THAT(message_of([] { model_of(with(mixtral_json(), "model_type", "llama")); }),
              AllOf(HasSubstr("llama"), HasSubstr("mixtral"), HasSubstr("qwen3_moe"), HasSubstr("deepseek")));
  EXPECT_THAT(message_of([] { model_of(json::object()); }), HasSubstr("(none)"));
}

TEST(Family, NamesAMissingKey) {
  json config = mixtral_json();
  config.erase("num_local_experts");
  EXPECT_THAT(message_of([&] { model_of(config); }), HasSubstr("num_local_experts is missing"));
}

TEST(Family, NamesKeysThatNobodyUnderstood) {
  const HfConfig config = parsed(with(mixtral_json(), "flux_capacitor", 1.21));
  read_model(family_of(config), config);
  EXPECT_THAT(config.not_understood(), ElementsAre("flux_capacitor = 1.21"));
}

TEST(Family, SaysWhyNoFamilyFits) {
  ModelConfig model = model_of(mixtral_json());
  model.router.score = ScoreFunction::sigmoid;
  EXPECT_THAT(message_of([&] { family_for(model); }),
              AllOf(HasSubstr("mixtral: model.router.score"), HasSubstr("qwen3_moe: model.qk_norm"),
                    HasSubstr("deepseek: model.router.score")));
}

TEST(Family, NamesTensorsAsTheirFilesDo) {
  const auto name = [](size_t family, const char* ours) { return their_name(families()[family], ours); };
  EXPECT_EQ(name(0, "embedding"), "model.embed_tokens.weight");
  EXPECT_EQ(name(0, "head"), "lm_head.weight");
  EXPECT_EQ(name(0, "layers.31.attention.norm"), "model.layers.31.input_layernorm.weight");
  EXPECT_EQ(name(0, "layers.3.moe.router"), "model.layers.3.block_sparse_moe.gate.weight");
  EXPECT_EQ(name(0, "layers.3.experts.12.w2"), "model.layers.3.block_sparse_moe.experts.12.w2.weight");
  EXPECT_EQ(name(1, "layers.3.experts.12.w3"), "model.layers.3.mlp.experts.12.up_proj.weight");
  EXPECT_EQ(name(1, "layers.3.attention.k_norm"), "model.layers.3.self_attn.k_norm.weight");
  EXPECT_EQ(name(2, "layers.0.dense.w1"), "model.layers.0.mlp.gate_proj.weight");
  EXPECT_EQ(name(2, "layers.3.shared.w2"), "model.layers.3.mlp.shared_experts.down_proj.weight");
  EXPECT_EQ(name(2, "layers.3.attention.o"), "model.layers.3.self_attn.o_proj.weight");
  EXPECT_EQ(name(3, "layers.3.attention.norm_bias"), "model.layers.3.input_layernorm.bias");
  EXPECT_EQ(name(3, "layers.3.attention.q_bias"), "model.layers.3.self_attn.q_proj.bias");
  EXPECT_EQ(name(3, "final_norm_bias"), "model.norm.bias");
  EXPECT_EQ(name(3, "head_bias"), "lm_head.bias");
}

}  // namespace
}  // namespace moesaic::test
