#include "config/shapes.h"

#include <fmt/ranges.h>

#include <array>

#include "base/error.h"
#include "config/nearest.h"

namespace moesaic {
namespace {

// Softmax over all E, the K chosen weights divided by their sum.
constexpr RouterConfig kRenormalized{};
// Softmax over the K chosen logits; the same as renormalizing a softmax over all E.
constexpr RouterConfig kTopkSoftmax{.softmax_after_topk = true};
// Softmax over all E, the K chosen weights as they are.
constexpr RouterConfig kPlainSoftmax{.renormalize = false};

ModelConfig tiny() {
  return {};
}

// Trains to a useful loss within minutes on a CPU; vocabulary: bytes and three special tokens.
ModelConfig quickstart() {
  return {.num_layers = 4,
          .hidden = 128,
          .num_heads = 4,
          .num_kv_heads = 2,
          .head_dim = 32,
          .expert_ffn = 256,
          .num_experts = 8,
          .top_k = 2,
          .vocab = 259,
          .router = kRenormalized};
}

// MegaScale-MoE (arXiv 2505.11432), table 2. The shared expert is not listed there: its parameter count and
// MFU need it.
ModelConfig internal_352b() {
  return {.num_layers = 60,
          .hidden = 4096,
          .num_heads = 32,
          .num_kv_heads = 8,
          .head_dim = 128,
          .expert_ffn = 14336,
          .num_experts = 32,
          .top_k = 3,
          .vocab = 65536,
          .shared_ffn = 14336,
          .router = kRenormalized};
}

ModelConfig mixtral_8x7b() {
  return {.num_layers = 32,
          .hidden = 4096,
          .num_heads = 32,
          .num_kv_heads = 8,
          .head_dim = 128,
          .expert_ffn = 14336,
          .num_experts = 8,
          .top_k = 2,
          .vocab = 32000,
          .rope_theta = 1e6,
          .router = kTopkSoftmax};
}

ModelConfig mixtral_8x22b() {
  return {.num_layers = 56,
          .hidden = 6144,
          .num_heads = 48,
          .num_kv_heads = 8,
          .head_dim = 128,
          .expert_ffn = 16384,
          .num_experts = 8,
          .top_k = 2,
          .vocab = 32000,
          .rope_theta = 1e6,
          .router = kTopkSoftmax};
}

// Its sharing of keys and values between neighbouring layers is left out: every layer has its own.
ModelConfig hunyuan_large() {
  return {.num_layers = 64,
          .hidden = 6400,
          .num_heads = 80,
          .num_kv_heads = 8,
          .head_dim = 80,
          .expert_ffn = 18304,
          .num_experts = 16,
          .top_k = 1,
          .vocab = 128512,
          .shared_ffn = 18304,
          .tied_embedding = true,
          .qk_norm = true,
          .router = kPlainSoftmax};
}

// Its LayerNorm, biases, SparseMixer router and LongRoPE are left out, as in what docs/results/ compares: RMSNorm, a plain softmax
// and plain RoPE take their places. An imported one (moesaic convert) has them.
ModelConfig phi_35_moe() {
  return {.num_layers = 32,
          .hidden = 4096,
          .num_heads = 32,
          .num_kv_heads = 8,
          .head_dim = 128,
          .expert_ffn = 6400,
          .num_experts = 16,
          .top_k = 2,
          .vocab = 32064,
          .router = kPlainSoftmax};
}

ModelConfig deepseek_moe_16b() {
  return {.num_layers = 28,
          .hidden = 2048,
          .num_heads = 16,
          .num_kv_heads = 16,
          .head_dim = 128,
          .expert_ffn = 1408,
          .num_experts = 64,
          .top_k = 6,
          .vocab = 102400,
          .shared_ffn = 2 * 1408,
          .num_dense_layers = 1,
          .dense_ffn = 10944,
          .norm_eps = 1e-6,
          .router = kPlainSoftmax};
}

ModelConfig qwen3_30b_a3b() {
  return {.num_layers = 48,
          .hidden = 2048,
          .num_heads = 32,
          .num_kv_heads = 4,
          .head_dim = 128,
          .expert_ffn = 768,
          .num_experts = 128,
          .top_k = 8,
          .vocab = 151936,
          .qk_norm = true,
          .norm_eps = 1e-6,
          .rope_theta = 1e6,
          .router = kRenormalized};
}

struct Entry {
  std::string_view name;
  ModelConfig (*make)();
};

constexpr std::array kShapes{Entry{"tiny", tiny},
                             Entry{"quickstart", quickstart},
                             Entry{"internal-352b", internal_352b},
                             Entry{"mixtral-8x7b", mixtral_8x7b},
                             Entry{"mixtral-8x22b", mixtral_8x22b},
                             Entry{"hunyuan-large", hunyuan_large},
                             Entry{"phi-3.5-moe", phi_35_moe},
                             Entry{"deepseek-moe-16b", deepseek_moe_16b},
                             Entry{"qwen3-30b-a3b", qwen3_30b_a3b}};

}  // namespace

std::vector<std::string_view> model_shape_names() {
  std::vector<std::string_view> names;
  names.reserve(std::size(kShapes));
  for (const Entry& entry : kShapes) names.push_back(entry.name);
  return names;
}

ModelConfig model_shape(std::string_view name) {
  for (const Entry& entry : kShapes) {
    if (entry.name != name) continue;
    ModelConfig model = entry.make();
    model.name = name;
    return model;
  }
  const std::vector<std::string_view> known = model_shape_names();
  const std::string_view meant = nearest(name, known);
  const std::string hint = meant.empty() ? "" : fmt::format("Did you mean {}? ", meant);
  fail<ConfigError>("unknown model shape \"{}\". {}The shipped ones are {}", excerpt(name), hint,
                    fmt::join(known, ", "));
}

}  // namespace moesaic
