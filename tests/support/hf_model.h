#pragma once
// Hugging Face folders for tests: a config.json of each family, small, and files of weights with known values.
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/rng.h"
#include "checkpoint/safetensors.h"
#include "hf/hf_folder.h"
#include "hf/tensor_list.h"
#include "support/temp_folder.h"

namespace moesaic::test {

using nlohmann::json;

inline json mixtral_json() {
  return {{"architectures", {"MixtralForCausalLM"}},
          {"model_type", "mixtral"},
          {"attention_dropout", 0.0},
          {"bos_token_id", 1},
          {"eos_token_id", 2},
          {"hidden_act", "silu"},
          {"hidden_size", 16},
          {"initializer_range", 0.02},
          {"intermediate_size", 12},
          {"max_position_embeddings", 64},
          {"num_attention_heads", 4},
          {"num_experts_per_tok", 2},
          {"num_hidden_layers", 2},
          {"num_key_value_heads", 2},
          {"num_local_experts", 4},
          {"output_router_logits", false},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 1e6},
          {"router_aux_loss_coef", 0.02},
          {"sliding_window", nullptr},
          {"tie_word_embeddings", false},
          {"torch_dtype", "bfloat16"},
          {"transformers_version", "4.36.0"},
          {"use_cache", true},
          {"vocab_size", 33}};
}

inline json qwen3_moe_json() {
  return {{"architectures", {"Qwen3MoeForCausalLM"}},
          {"model_type", "qwen3_moe"},
          {"attention_bias", false},
          {"decoder_sparse_step", 1},
          {"head_dim", 8},
          {"hidden_act", "silu"},
          {"hidden_size", 16},
          {"intermediate_size", 40},
          {"max_position_embeddings", 64},
          {"max_window_layers", 2},
          {"mlp_only_layers", json::array()},
          {"moe_intermediate_size", 12},
          {"norm_topk_prob", true},
          {"num_attention_heads", 4},
          {"num_experts", 4},
          {"num_experts_per_tok", 2},
          {"num_hidden_layers", 2},
          {"num_key_value_heads", 2},
          {"rms_norm_eps", 1e-6},
          {"rope_scaling", nullptr},
          {"rope_theta", 1e6},
          {"sliding_window", 8},
          {"tie_word_embeddings", false},
          {"use_sliding_window", false},
          {"vocab_size", 33}};
}

inline json deepseek_json() {
  return {{"architectures", {"DeepseekForCausalLM"}},
          {"model_type", "deepseek"},
          {"auto_map", {{"AutoModelForCausalLM", "modeling_deepseek.DeepseekForCausalLM"}}},
          {"attention_bias", false},
          {"aux_loss_alpha", 0.001},
          {"first_k_dense_replace", 1},
          {"hidden_act", "silu"},
          {"hidden_size", 16},
          {"intermediate_size", 40},
          {"max_position_embeddings", 64},
          {"moe_intermediate_size", 12},
          {"moe_layer_freq", 1},
          {"n_routed_experts", 4},
          {"n_shared_experts", 2},
          {"norm_topk_prob", false},
          {"num_attention_heads", 4},
          {"num_experts_per_tok", 2},
          {"num_hidden_layers", 2},
          {"num_key_value_heads", 4},
          {"pretraining_tp", 1},
          {"rms_norm_eps", 1e-6},
          {"rope_scaling", nullptr},
          {"rope_theta", 1e4},
          {"scoring_func", "softmax"},
          {"seq_aux", true},
          {"tie_word_embeddings", false},
          {"vocab_size", 33}};
}

inline json phimoe_json() {
  return {{"architectures", {"PhimoeForCausalLM"}},
          {"model_type", "phimoe"},
          {"attention_bias", true},
          {"attention_dropout", 0.0},
          {"hidden_act", "silu"},
          {"hidden_size", 16},
          {"input_jitter_noise", 0.01},
          {"intermediate_size", 12},
          {"lm_head_bias", true},
          {"max_position_embeddings", 64},
          {"num_attention_heads", 4},
          {"num_experts_per_tok", 2},
          {"num_hidden_layers", 2},
          {"num_key_value_heads", 2},
          {"num_local_experts", 4},
          {"original_max_position_embeddings", 16},
          {"rms_norm_eps", 1e-5},
          {"rope_scaling",
           {{"long_factor", {1.5, 4.0}},
            {"long_mscale", 1.25},
            {"original_max_position_embeddings", 16},
            {"short_factor", {1.0, 1.25}},
            {"short_mscale", 1.125},
            {"type", "longrope"}}},
          {"rope_theta", 1e4},
          {"router_jitter_noise", 0.01},
          {"sliding_window", 64},
          {"tie_word_embeddings", false},
          {"vocab_size", 33}};
}

inline HfConfig parsed(const json& config) {
  return {config, "config.json"};
}
inline ModelConfig model_of(const json& config) {
  const HfConfig parsed_config = parsed(config);
  return read_model(family_of(parsed_config), parsed_config);
}

struct NamedBytes {
  StoredTensor tensor;
  std::string bytes;
};
using Weights = std::map<std::string, NamedBytes>;  // by their name

inline NamedBytes named(const std::string& name, DType type, const std::vector<int64_t>& shape,
                        std::string bytes) {
  return {StoredTensor{name, type, shape}, std::move(bytes)};
}

/// A tensor for each of the family's names, with values that F32, BF16 and F16 hold exactly.
inline Weights make_weights(const json& config, DType type) {
  const HfConfig parsed_config = parsed(config);
  const Family& family = family_of(parsed_config);
  Weights weights;
  for (const NamedTensor& tensor : list_tensors(family, read_model(family, parsed_config))) {
    std::string bytes;
    for (int64_t i = 0; i < checked_numel(tensor.shape, ""); ++i) {
      const auto step =
          static_cast<int>(random_below(255, 1, stream_of(tensor.theirs), static_cast<uint64_t>(i))) - 127;
      const float value = static_cast<float>(step) / 64;
      char stored[4] = {};
      if (type == DType::f32) std::memcpy(stored, &value, 4);
      if (type == DType::bf16) std::memcpy(stored, &static_cast<const bf16&>(bf16(value)), 2);
      if (type == DType::f16) {
        int exponent = 0;  // of an exact value in FP16's normal range: sign, exponent, fraction
        const float fraction = std::frexp(std::abs(value), &exponent);
        const auto bits =
            static_cast<uint16_t>(value == 0 ? 0
                                             : (value < 0 ? 0x8000 : 0) + ((exponent + 14) << 10) +
                                                   static_cast<int>(fraction * 2048) - 1024);
        std::memcpy(stored, &bits, 2);
      }
      bytes.append(stored, static_cast<size_t>(size_of(type)));
    }
    weights[tensor.theirs] = named(tensor.theirs, type, tensor.shape, bytes);
  }
  return weights;
}

inline void write_safetensors(const std::string& path, const Weights& weights) {
  std::vector<StoredTensor> tensors;
  std::vector<const std::string*> bytes;
  for (const auto& [name, weight] : weights) {
    tensors.push_back(weight.tensor);
    bytes.push_back(&weight.bytes);
  }
  SafetensorsWriter writer(path, tensors, {{"format", "pt"}});
  for (const size_t i : writer.order()) writer.append(std::as_bytes(std::span(*bytes[i])));
  writer.finish();
}

/// config.json and the weights in `num_files` files.
inline void write_hf_folder(const std::string& path, const json& config, const Weights& weights,
                            size_t num_files = 1) {
  make_folders(path);
  spit(path + "/config.json", config.dump(2));
  if (num_files == 1) return write_safetensors(path + "/model.safetensors", weights);
  std::vector<Weights> shards(num_files);
  json map;
  size_t next = 0;
  for (const auto& [name, weight] : weights) {
    const size_t shard = next++ % num_files;
    shards[shard][name] = weight;
    map[name] = fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, num_files);
  }
  for (size_t i = 0; i < num_files; ++i)
    write_safetensors(fmt::format("{}/model-{:05}-of-{:05}.safetensors", path, i + 1, num_files), shards[i]);
  spit(path + "/model.safetensors.index.json",
       json{{"metadata", json::object()}, {"weight_map", map}}.dump());
}

/// Every tensor of a folder, by its name.
inline Weights read_hf_folder(const std::string& path) {
  const HfFolder folder(path);
  Weights weights;
  for (size_t i = 0; i < folder.files().size(); ++i) {
    const SafetensorsFile file(folder.file_path(i));
    for (const StoredTensor& tensor : file.tensors()) {
      const auto data = file.data(tensor);
      weights[tensor.name] = named(tensor.name, tensor.dtype, tensor.shape,
                                   {reinterpret_cast<const char*>(data.data()), data.size()});
    }
  }
  return weights;
}

}  // namespace moesaic::test
