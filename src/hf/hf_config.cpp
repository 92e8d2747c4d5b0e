#include "hf/hf_config.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "config/nearest.h"

namespace moesaic {
namespace {

using nlohmann::json;

constexpr int64_t kMaxBytes = int64_t{16} << 20;

// Of use to transformers, to a tokenizer or to text generation, or a matter of training that a run's configuration decides.
constexpr std::array<std::string_view, 33> kNeutral{"architectures",
                                                    "model_type",
                                                    "_name_or_path",
                                                    "name_or_path",
                                                    "transformers_version",
                                                    "torch_dtype",
                                                    "dtype",
                                                    "auto_map",
                                                    "use_cache",
                                                    "bos_token_id",
                                                    "eos_token_id",
                                                    "pad_token_id",
                                                    "max_position_embeddings",
                                                    "initializer_range",
                                                    "output_router_logits",
                                                    "output_attentions",
                                                    "output_hidden_states",
                                                    "return_dict",
                                                    "router_aux_loss_coef",
                                                    "aux_loss_alpha",
                                                    "seq_aux",
                                                    "pretraining_tp",
                                                    "max_window_layers",
                                                    "is_encoder_decoder",
                                                    "is_decoder",
                                                    "add_cross_attention",
                                                    "chunk_size_feed_forward",
                                                    "problem_type",
                                                    "id2label",
                                                    "label2id",
                                                    "num_labels",
                                                    "attn_implementation",
                                                    "_attn_implementation"};

std::string short_text(const json& value) {
  return std::string(excerpt(value.dump(-1, ' ', false, json::error_handler_t::replace)));
}

}  // namespace

HfConfig HfConfig::read(const std::string& path) {
  json object = parse_json(read_file(path, kMaxBytes), path);
  require<IoError>(object.is_object(), "{}: expected one JSON object", path);
  return {std::move(object), path};
}

bool HfConfig::has(const char* key) const {
  return object_.contains(key) && !object_.at(key).is_null();
}

const json& HfConfig::get(const char* key) const {
  understand(key);
  require<ConfigError>(has(key), "{}: {} is missing", path_, key);
  return object_.at(key);
}

void HfConfig::refuse(const char* key, const std::string& why) const {
  fail<ConfigError>("{}: {} = {}: {}", path_, key,
                    object_.contains(key) ? short_text(object_.at(key)) : "null", why);
}

int64_t HfConfig::whole(const char* key) const {
  const json& value = get(key);
  if (!value.is_number_integer() || value < 0 || (value.is_number_unsigned() && value > json(INT64_MAX)))
    refuse(key, "expected a whole number from 0 on");
  return value.get<int64_t>();
}

int64_t HfConfig::whole(const char* key, int64_t fallback) const {
  understand(key);
  return has(key) ? whole(key) : fallback;
}

int64_t HfConfig::whole_of_either(const char* key, const char* twin) const {
  understand(key);
  understand(twin);
  if (!has(twin)) {
    require<ConfigError>(has(key), "{}: {} is missing, and so is {}, its other name", path_, key, twin);
    return whole(key);
  }
  const int64_t value = whole(twin);
  if (has(key) && whole(key) != value)
    refuse(key, fmt::format("{} = {} says the same by another name; remove the wrong one", twin, value));
  return value;
}

double HfConfig::number(const char* key) const {
  const json& value = get(key);
  if (!value.is_number()) refuse(key, "expected a number");
  return value.get<double>();
}

double HfConfig::number(const char* key, double fallback) const {
  understand(key);
  return has(key) ? number(key) : fallback;
}

bool HfConfig::flag(const char* key, bool fallback) const {
  understand(key);
  if (!has(key)) return fallback;
  if (!object_.at(key).is_boolean()) refuse(key, "expected true or false");
  return object_.at(key).get<bool>();
}

std::string HfConfig::text(const char* key, const std::string& fallback) const {
  understand(key);
  if (!has(key)) return fallback;
  if (!object_.at(key).is_string()) refuse(key, "expected a string");
  return object_.at(key).get<std::string>();
}

std::vector<int64_t> HfConfig::wholes(const char* key) const {
  understand(key);
  std::vector<int64_t> values;
  if (!has(key)) return values;
  if (!object_.at(key).is_array()) refuse(key, "expected a list of whole numbers");
  for (const json& value : object_.at(key)) {
    if (!value.is_number_integer() || value < 0) refuse(key, "expected a list of whole numbers");
    values.push_back(value.get<int64_t>());
  }
  return values;
}

double HfConfig::rope_theta(double fallback) const {
  double theta = number("rope_theta", fallback);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    understand(key);
    if (!has(key)) continue;
    const json& rope = object_.at(key);
    if (!rope.is_object()) refuse(key, "expected an object or null");
    for (const auto& [name, value] : rope.items()) {
      if (name == "rope_theta" && value.is_number())
        theta = value.get<double>();
      else if (((name != "rope_type" && name != "type") || value != json("default")) &&
               (name != "partial_rotary_factor" || value != json(1.0)))
        refuse(key, "scaled rotary positions are not supported, only rope_type default");
    }
  }
  return theta;
}

std::vector<std::string> HfConfig::not_understood() const {
  std::vector<std::string> found;
  for (const auto& [key, value] : object_.items())
    if (!value.is_null() && !understood_.contains(key) &&
        std::find(kNeutral.begin(), kNeutral.end(), key) == kNeutral.end())
      found.push_back(fmt::format("{} = {}", key, short_text(value)));
  return found;
}

}  // namespace moesaic
