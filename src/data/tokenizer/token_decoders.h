#pragma once
// The "decoder" of a tokenizer.json: tokens, as the vocabulary writes them, to text.
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace moesaic {

class TokenDecoders {
 public:
  /// value: null (tokens are joined by spaces), or a component with a "type". ConfigError naming a type that is not
  /// supported, IoError for a damaged one; both begin with `where`.
  TokenDecoders(const nlohmann::json& value, const std::string& where);

  /// The bytes that the tokens stand for; not always UTF-8.
  std::string apply(std::vector<std::string> tokens) const;

 private:
  using Tokens = std::vector<std::string>;
  void add(const nlohmann::json& value, const std::string& where);

  std::vector<std::function<void(Tokens&)>> steps_;  // in order
  std::string between_;
};

}  // namespace moesaic
