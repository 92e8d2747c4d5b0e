#pragma once
// A folder of weights as Hugging Face has it: model.safetensors, or model.safetensors.index.json with the shards that it
// names. Files from outside: a shard must lie in the folder, and each tensor in exactly the shard that the index says.
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "hf/hf_config.h"

namespace moesaic {

inline constexpr const char* kHfWeightsName = "model.safetensors";
inline constexpr const char* kHfIndexName = "model.safetensors.index.json";

struct HfTensor {
  StoredTensor stored;
  size_t file = 0;  // of files()
};

class HfFolder {
 public:
  /// Reads config and the headers of all shards; keeps no file open. Throws IoError.
  explicit HfFolder(std::string path);

  const std::string& path() const { return path_; }
  const HfConfig& config() const { return config_; }
  /// Names in the folder, sorted.
  const std::vector<std::string>& files() const { return files_; }
  /// By their name.
  const std::map<std::string, HfTensor>& tensors() const { return tensors_; }
  std::string file_path(size_t file) const { return path_ + "/" + files_[file]; }

 private:
  void add_shard(size_t file);
  void read_index();

  std::string path_;
  HfConfig config_;
  std::vector<std::string> files_;
  std::map<std::string, HfTensor> tensors_;
};

/// True for a folder with a config.json beside weights of any kind.
bool is_hf_folder(const std::string& path);

/// Copies into `to`, a folder that is made, what belongs to a model besides its weights and lies in `from`: the config.json
/// (if `with_config`), the tokenizer's files, and code that config.json's auto_map names. Returns the names copied.
std::vector<std::string> copy_companions(const std::string& from, const std::string& to, bool with_config);

/// True if `name` names a file in a folder and nothing outside it.
bool is_plain_name(std::string_view name);

}  // namespace moesaic
