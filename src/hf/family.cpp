#include "hf/family.h"

#include <fmt/ranges.h>

#include <optional>

#include "base/check.h"
#include "base/error.h"
#include "config/nearest.h"
#include "config/validate.h"
#include "hf/family_rows.h"

namespace moesaic {
namespace {

constexpr std::array<std::string_view, 3> kProjections{"gate_proj", "up_proj", "down_proj"};

constexpr std::string_view kMixtral[]{"MixtralForCausalLM"}, kQwen3Moe[]{"Qwen3MoeForCausalLM"},
    kDeepseek[]{"DeepseekForCausalLM"},
    kPhimoe[]{"PhimoeForCausalLM",
              "PhiMoEForCausalLM"};  // of transformers, of the code published with the weights

constexpr std::array<Family, 4> kFamilies{
    Family{"mixtral",
           kMixtral,
           "block_sparse_moe",
           {"w1", "w3", "w2"},
           read_mixtral,
           mixtral_problem,
           write_mixtral},
    Family{"qwen3_moe", kQwen3Moe, "mlp", kProjections, read_qwen3_moe, qwen3_moe_problem, write_qwen3_moe},
    Family{"deepseek", kDeepseek, "mlp", kProjections, read_deepseek, deepseek_problem, write_deepseek},
    Family{"phimoe",
           kPhimoe,
           "block_sparse_moe",
           {"w1", "w3", "w2"},
           read_phimoe,
           phimoe_problem,
           write_phimoe}};

std::string known_families() {
  std::string names;
  for (const Family& family : kFamilies)
    names += fmt::format("{}{} ({})", names.empty() ? "" : ", ", family.model_type,
                         fmt::join(family.architectures, " or "));
  return names;
}

/// The family's name that "architectures" of a config.json holds alone; none if it holds anything else.
std::optional<std::string_view> architecture_in(const Family& family, const nlohmann::json& config) {
  const auto found = config.find("architectures");
  if (found != config.end())
    for (const std::string_view name : family.architectures)
      if (*found == nlohmann::json::array({name})) return name;
  return std::nullopt;
}

/// "w1" -> "gate_proj"; anything else stays.
std::string_view ffn_name(const Family& family, std::string_view part) {
  constexpr std::array<std::string_view, 3> kOurs{"w1", "w3", "w2"};
  for (size_t i = 0; i < kOurs.size(); ++i)
    if (part == kOurs[i]) return family.ffn[i];
  return part;
}

}  // namespace

std::span<const Family> families() {
  return kFamilies;
}

const Family& family_of(const HfConfig& config) {
  const std::string type = config.text("model_type", "");
  for (const Family& family : kFamilies) {
    if (family.model_type != type) continue;
    if (config.has("architectures") && !architecture_in(family, config.object()))
      config.refuse("architectures",
                    fmt::format("expected [\"{}\"]", fmt::join(family.architectures, "\"] or [\"")));
    return family;
  }
  fail<ConfigError>("{}: model_type = {} is not supported; these are: {}", config.path(),
                    type.empty() ? "(none)" : excerpt(type), known_families());
}

const Family& family_for(const ModelConfig& model) {
  std::string problems;
  for (const Family& family : kFamilies) {
    const std::string problem = family.problem(model);
    if (problem.empty()) return family;
    problems += fmt::format("; {}: {}", family.model_type, problem);
  }
  fail<ConfigError>("no supported family of Hugging Face can say this model{}", problems);
}

ModelConfig read_model(const Family& family, const HfConfig& config) {
  Config checked;
  checked.model = family.read(config);
  checked.model.name = family.model_type;
  try {
    validate_values(checked);
  } catch (const ConfigError& error) {
    fail<ConfigError>("{}: {}", config.path(), error.what());
  }
  // A key that the family's own code does not read, such as head_dim, must not make another model of it here.
  const std::string problem = family.problem(checked.model);
  require<ConfigError>(problem.empty(), "{}: a model of type {} cannot be this: {}", config.path(),
                       family.model_type, problem);
  return checked.model;
}

nlohmann::json write_model(const Family& family, const ModelConfig& model, const nlohmann::json& like) {
  nlohmann::json config = like.is_object() ? like : nlohmann::json::object();
  config["architectures"] = {architecture_in(family, config).value_or(family.architectures.front())};
  config["model_type"] = family.model_type;
  write_common(model, config);
  family.write(model, config);
  return config;
}

std::string their_name(const Family& family, std::string_view ours) {
  constexpr std::string_view kBias = "_bias";
  if (ours.ends_with(kBias)) {
    const std::string weight = their_name(family, ours.substr(0, ours.size() - kBias.size()));
    return weight.substr(0, weight.rfind('.')) + ".bias";
  }
  if (ours == "embedding") return "model.embed_tokens.weight";
  if (ours == "final_norm") return "model.norm.weight";
  if (ours == "head") return "lm_head.weight";
  constexpr std::string_view kLayers = "layers.";
  MOESAIC_CHECK(ours.starts_with(kLayers), "{}", ours);
  const size_t dot = ours.find('.', kLayers.size());
  const std::string_view part = ours.substr(dot + 1);
  const auto named = [&](std::string_view name) {
    return fmt::format("model.{}.{}.weight", ours.substr(0, dot), name);
  };
  if (part == "attention.norm") return named("input_layernorm");
  if (part == "ffn.norm") return named("post_attention_layernorm");
  if (part == "moe.router") return named(fmt::format("{}.gate", family.moe));
  const size_t last = part.rfind('.');
  const std::string_view group = part.substr(0, last), leaf = part.substr(last + 1);
  if (group == "attention")
    return named(fmt::format("self_attn.{}{}", leaf, leaf.ends_with("_norm") ? "" : "_proj"));
  const std::string_view name = ffn_name(family, leaf);
  if (group == "dense") return named(fmt::format("{}.{}", family.moe, name));
  if (group == "shared") return named(fmt::format("{}.shared_experts.{}", family.moe, name));
  MOESAIC_CHECK(group.starts_with("experts."), "{}", ours);
  return named(fmt::format("{}.{}.{}", family.moe, group, name));
}

}  // namespace moesaic
