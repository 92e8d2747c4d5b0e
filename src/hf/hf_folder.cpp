#include "hf/hf_folder.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "config/nearest.h"

namespace moesaic {
namespace {

using nlohmann::json;

constexpr int64_t kMaxIndexBytes = int64_t{256} << 20;
constexpr int64_t kMaxCompanionBytes = int64_t{256} << 20;
constexpr const char* kCompanions[] = {"tokenizer.json",
                                       "tokenizer.model",
                                       "tokenizer_config.json",
                                       "special_tokens_map.json",
                                       "added_tokens.json",
                                       "vocab.json",
                                       "merges.txt",
                                       "chat_template.jinja",
                                       "generation_config.json"};

bool has_file(const std::string& folder, const std::string& name) {
  return path_exists(folder + "/" + name);
}

/// "modeling_deepseek.py" for an auto_map entry "modeling_deepseek.DeepseekForCausalLM".
std::vector<std::string> code_files(const std::string& folder) {
  std::vector<std::string> names;
  if (!has_file(folder, kHfConfigName)) return names;
  const HfConfig config = HfConfig::read(folder + "/" + kHfConfigName);
  if (!config.has("auto_map") || !config.object()["auto_map"].is_object()) return names;
  for (const auto& [key, value] : config.object()["auto_map"].items()) {
    if (!value.is_string()) continue;
    const std::string text = value.get<std::string>(), name = text.substr(0, text.find('.')) + ".py";
    if (is_plain_name(name) && std::find(names.begin(), names.end(), name) == names.end())
      names.push_back(name);
  }
  return names;
}

}  // namespace

bool is_plain_name(std::string_view name) {
  return !name.empty() && name[0] != '.' && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

bool is_hf_folder(const std::string& path) {
  if (!has_file(path, kHfConfigName)) return false;
  const auto names = list_folder(path);
  return std::any_of(names.begin(), names.end(), [](const std::string& name) {
    return name.ends_with(".safetensors") || name == kHfIndexName || name.starts_with("pytorch_model");
  });
}

HfFolder::HfFolder(std::string path)
    : path_(std::move(path)), config_(HfConfig::read(path_ + "/" + kHfConfigName)) {
  if (has_file(path_, kHfIndexName)) {
    read_index();
    return;
  }
  if (!has_file(path_, kHfWeightsName)) {
    require<IoError>(
        !has_file(path_, "pytorch_model.bin") && !has_file(path_, "pytorch_model.bin.index.json"),
        "{} holds pytorch_model.bin, a pickle, which runs code when it is read; save the model with "
        "safe_serialization=True and convert that",
        path_);
    fail<IoError>("{} holds neither {} nor {}", path_, kHfWeightsName, kHfIndexName);
  }
  files_ = {kHfWeightsName};
  add_shard(0);
}

void HfFolder::add_shard(size_t file) {
  const SafetensorsFile shard(file_path(file));
  for (const StoredTensor& tensor : shard.tensors()) {
    const auto [at, added] = tensors_.try_emplace(tensor.name, HfTensor{tensor, file});
    require<IoError>(added, "{}: tensor {} is in {} already", file_path(file), tensor.name,
                     files_[at->second.file]);
  }
}

void HfFolder::read_index() {
  const std::string where = path_ + "/" + kHfIndexName;
  const json index = parse_json(read_file(where, kMaxIndexBytes), where);
  const json& map = member(index, "weight_map", where);
  require<IoError>(map.is_object() && !map.empty(), "{}: \"weight_map\" must be an object with the tensors",
                   where);
  for (const auto& [name, file] : map.items()) {
    require<IoError>(
        file.is_string() && is_plain_name(file.get<std::string>()) &&
            file.get<std::string>().ends_with(".safetensors"),
        "{}: {} is said to be in {}, which is not the name of a .safetensors file in this folder", where,
        excerpt(name), excerpt(file.dump(-1, ' ', false, json::error_handler_t::replace)));
    files_.push_back(file.get<std::string>());
  }
  std::sort(files_.begin(), files_.end());
  files_.erase(std::unique(files_.begin(), files_.end()), files_.end());
  for (size_t file = 0; file < files_.size(); ++file) add_shard(file);
  for (const auto& [name, file] : map.items()) {
    const auto found = tensors_.find(name);
    require<IoError>(found != tensors_.end() && files_[found->second.file] == file.get<std::string>(),
                     "{}: tensor {} is not in {}, where the index says it is", where, excerpt(name),
                     file.get<std::string>());
  }
  for (const auto& [name, tensor] : tensors_)
    require<IoError>(map.contains(name), "{}: tensor {} of {} is not in the index", where, excerpt(name),
                     files_[tensor.file]);
}

std::vector<std::string> copy_companions(const std::string& from, const std::string& to, bool with_config) {
  std::vector<std::string> names(std::begin(kCompanions), std::end(kCompanions)), copied;
  if (with_config) names.insert(names.begin(), kHfConfigName);
  const auto code = code_files(from);
  names.insert(names.end(), code.begin(), code.end());
  make_folders(to);
  for (const std::string& name : names) {
    if (!has_file(from, name)) continue;
    AtomicFile file(fmt::format("{}/{}", to, name));
    file.write(read_file(fmt::format("{}/{}", from, name), kMaxCompanionBytes));
    file.commit();
    copied.push_back(name);
  }
  return copied;
}

}  // namespace moesaic
