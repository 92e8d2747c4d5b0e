#pragma once
// The "added_tokens" of a tokenizer.json: found in the text before the model sees it.
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/tokenizer/normalizers.h"
#include "data/tokenizer/regex.h"
#include "data/tokenizer/token_trie.h"

namespace moesaic {

struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool special = false;                 // decodes to nothing
  bool normalized = true;               // looked for in the normalised text, itself normalised
  bool single_word = false;             // not next to a letter, digit or the like
  bool lstrip = false, rstrip = false;  // takes the spaces to its left, its right
};

/// IoError, beginning with `where`, for a damaged one.
AddedToken read_added_token(const nlohmann::json& value, const std::string& where);

class AddedTokens {
 public:
  AddedTokens(std::vector<AddedToken> tokens, const Normalizers& normalizers);

  const std::vector<AddedToken>& all() const { return tokens_; }
  bool is_special(int32_t id) const;

  /// Calls visit(range, id) for all of a text in order; id < 0: a part, not empty, without tokens of that kind.
  using Visit = std::function<void(TextRange, int32_t)>;
  void split_raw(std::string_view text, const Visit& visit) const { split(raw_, text, visit); }
  void split_normalized(std::string_view text, const Visit& visit) const { split(normalized_, text, visit); }
  bool any_normalized() const { return !normalized_.empty(); }

 private:
  void split(const TokenTrie& trie, std::string_view text, const Visit& visit) const;

  std::vector<AddedToken> tokens_;
  std::unordered_map<int32_t, size_t> by_id_;  // index into tokens_
  TokenTrie raw_, normalized_;
};

}  // namespace moesaic
