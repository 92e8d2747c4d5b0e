// The model against one that we did not write: logits, loss, routing and every gradient of tiny Mixtral and Qwen3-MoE
// models, as Hugging Face's code computes them (README.md in this folder).
#include <gtest/gtest.h>

#include "golden/golden_file.h"

namespace moesaic::test {
namespace {

std::string replace(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

/// Hugging Face's name of one of our parameters.
std::string their_name(std::string name, bool mixtral) {
  if (name == "embedding") return "model.embed_tokens.weight";
  if (name == "final_norm") return "model.norm.weight";
  if (name == "head") return "lm_head.weight";
  const std::string moe = mixtral ? "block_sparse_moe" : "mlp";
  for (const char* p : {"q", "k", "v", "o"})
    if (name.ends_with(std::string("attention.") + p))
      name = replace(name, std::string("attention.") + p, std::string("self_attn.") + p + "_proj");
  name = replace(name, "attention.q_norm", "self_attn.q_norm");
  name = replace(name, "attention.k_norm", "self_attn.k_norm");
  name = replace(name, "attention.norm", "input_layernorm");
  name = replace(name, "ffn.norm", "post_attention_layernorm");
  name = replace(name, "moe.router", moe + ".gate");
  name = replace(name, ".experts.", "." + moe + ".experts.");
  if (!mixtral) {
    name = replace(name, ".w1", ".gate_proj");
    name = replace(name, ".w3", ".up_proj");
    name = replace(name, ".w2", ".down_proj");
  }
  return "model." + name + ".weight";
}

class Golden : public GoldenFile {
 public:
  using GoldenFile::GoldenFile;
  bool mixtral() const { return json().at("model_type") == "mixtral"; }

  Config config() const {
    Config c = small_config();
    ModelConfig& m = c.model;
    m.num_layers = json().at("num_hidden_layers");
    m.hidden = json().at("hidden_size");
    m.num_heads = json().at("num_attention_heads");
    m.num_kv_heads = json().at("num_key_value_heads");
    m.head_dim = json().at("head_dim");
    m.expert_ffn = json().at("moe_intermediate_size");
    m.num_experts = json().at("num_experts");
    m.top_k = json().at("num_experts_per_tok");
    m.vocab = json().at("vocab_size");
    m.norm_eps = json().at("rms_norm_eps");
    m.rope_theta = json().at("rope_theta");
    m.qk_norm = !mixtral();
    m.router.renormalize = true;
    c.balance.aux_coef = 0;
    c.train.seq_len = 32;
    c.train.micro_batch = c.train.global_batch = 2;
    return c;
  }

  void load_weights(Session& session) const {
    Stage& stage = session.stage();
    for (const ParameterRow& row : stage.table().rows()) {
      const auto w = floats(their_name(row.name, mixtral()));
      ASSERT_EQ(static_cast<int64_t>(w.size()), row.shape.numel()) << row.name;
      stage.device().store(stage.weights(row.bucket) + 4 * row.offset, w.data(), 4 * row.shape.numel());
    }
  }
};

void expect_equal_to_theirs(const std::string& fixture, int64_t n, int64_t dp) {
  const Golden golden(fixture);
  Config config = golden.config();
  config.layout.n = n, config.layout.dp = dp;
  config.train.micro_batch = 2 / dp;
  std::map<std::string, std::vector<float>> gradients;
  std::mutex mutex;
  StepResult result;
  run_ranks(config.run, n * dp, [&](Rank& rank) {
    Session session(config, rank);
    golden.load_weights(session);
    const StepResult mine =
        session.step([&](std::span<const int64_t> positions) { return golden.batch(positions); }, 0, 0);
    const std::lock_guard lock(mutex);
    collect_gradients(session, gradients);
    if (rank.rank == 0) result = mine;
  });
  EXPECT_NEAR(result.loss, golden.floats("loss")[0], 1e-5 * result.loss);
  for (const auto& [name, gradient] : gradients)
    EXPECT_LT(relative_error(gradient, golden.floats("grad." + their_name(name, golden.mixtral()))), 1e-4)
        << name;
}

void expect_their_logits(const std::string& fixture) {
  const Golden golden(fixture);
  const Config config = golden.config();
  run_ranks(config.run, 1, [&](Rank& rank) {
    Session session(config, rank, false);
    golden.load_weights(session);
    const std::vector<int64_t> both{0, 1};
    session.feed().send(golden.batch(both), 0, 0);
    const std::byte* memory = session.stage().logits();
    const auto logits = fetch_floats(*rank.device, memory, DType::f32, 2 * 32 * config.model.vocab);
    EXPECT_LT(relative_error(logits, golden.floats("logits")), 1e-5);
  });
}

TEST(Golden, MixtralLogitsEqualHuggingFace) {
  expect_their_logits("mixtral_tiny.safetensors");
}
TEST(Golden, MixtralLossAndGradientsEqualHuggingFace) {
  expect_equal_to_theirs("mixtral_tiny.safetensors", 1, 1);
}
TEST(Golden, MixtralOnFourRanksEqualsHuggingFace) {
  expect_equal_to_theirs("mixtral_tiny.safetensors", 2, 2);
}
TEST(Golden, Qwen3MoeLogitsEqualHuggingFace) {
  expect_their_logits("qwen3_moe_tiny.safetensors");
}
TEST(Golden, Qwen3MoeLossAndGradientsEqualHuggingFace) {
  expect_equal_to_theirs("qwen3_moe_tiny.safetensors", 1, 1);
}
TEST(Golden, Qwen3MoeOnFourRanksEqualsHuggingFace) {
  expect_equal_to_theirs("qwen3_moe_tiny.safetensors", 2, 2);
}

}  // namespace
}  // namespace moesaic::test
