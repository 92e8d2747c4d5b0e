#pragma once
// One golden file (README.md in this folder): its tensors, its batch and the configuration it was made with.
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "support/layout_runner.h"

namespace moesaic::test {

class GoldenFile {
 public:
  static constexpr int64_t kSeqLen = 32, kSequences = 2;

  explicit GoldenFile(const std::string& name)
      : file_(std::string(MOESAIC_SOURCE_DIR) + "/tests/golden/" + name),
        json_(nlohmann::json::parse(file_.metadata().at("config"))) {}

  const SafetensorsFile& file() const { return file_; }
  /// The keys of a config.json.
  const nlohmann::json& json() const { return json_; }

  template <class T>
  std::vector<T> values(const std::string& name) const {
    const auto& tensor = file_.get(name);
    std::vector<T> v(static_cast<size_t>(tensor.bytes) / sizeof(T));
    std::memcpy(v.data(), file_.data(tensor).data(), static_cast<size_t>(tensor.bytes));
    return v;
  }
  std::vector<float> floats(const std::string& name) const { return values<float>(name); }

  Batch batch(std::span<const int64_t> positions) const {
    const auto tokens = values<int32_t>("input_ids"), targets = values<int32_t>("targets");
    Batch b;
    b.num_sequences = static_cast<int64_t>(positions.size());
    for (int64_t p : positions)
      for (int64_t s = 0; s < kSeqLen; ++s) {
        b.tokens.push_back(tokens[static_cast<size_t>(p * kSeqLen + s)]);
        b.targets.push_back(targets[static_cast<size_t>(p * kSeqLen + s)]);
        b.positions.push_back(static_cast<int32_t>(s));
        b.doc_start.push_back(0);
        ++b.num_counted;
      }
    return b;
  }

 private:
  SafetensorsFile file_;
  nlohmann::json json_;
};

}  // namespace moesaic::test
