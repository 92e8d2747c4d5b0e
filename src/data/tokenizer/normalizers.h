#pragma once
// The "normalizer" of a tokenizer.json: text to the text that is tokenized.
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace moesaic {

class Normalizers {
 public:
  /// value: null, or a component with a "type". ConfigError naming a type that is not supported, IoError for a
  /// damaged one; both begin with `where`.
  Normalizers(const nlohmann::json& value, const std::string& where);

  bool empty() const { return steps_.empty(); }
  /// Valid UTF-8 to valid UTF-8.
  std::string apply(std::string_view text) const;

 private:
  void add(const nlohmann::json& value, const std::string& where);
  std::vector<std::function<void(std::string&)>> steps_;  // in order
};

}  // namespace moesaic
