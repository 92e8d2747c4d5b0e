#include "data/tokenizer/added_tokens.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "data/tokenizer/json_parts.h"
#include "data/tokenizer/unicode.h"
#include "data/tokenizer/utf8.h"

namespace moesaic {
namespace {

bool ends_with_word(std::string_view text) {
  return !text.empty() &&
         unicode::is_word(utf8::character_at(text, utf8::character_before(text, text.size())).code);
}

bool starts_with_word(std::string_view text) {
  return !text.empty() && unicode::is_word(utf8::character_at(text, 0).code);
}

size_t spaces_before(std::string_view text, size_t end, size_t least) {
  while (end > least) {
    const size_t before = utf8::character_before(text, end);
    if (before < least || !utf8::is_space(utf8::character_at(text, before).code)) break;
    end = before;
  }
  return end;
}

size_t spaces_behind(std::string_view text, size_t begin) {
  while (begin < text.size()) {
    const utf8::Character c = utf8::character_at(text, begin);
    if (!utf8::is_space(c.code)) break;
    begin += c.length;
  }
  return begin;
}

}  // namespace

AddedToken read_added_token(const nlohmann::json& value, const std::string& where) {
  using json_parts::flag;
  AddedToken token;
  token.content = string_member(value, "content", where);
  const int64_t id = int_member(value, "id", where);
  require<IoError>(id <= INT32_MAX, "{}: the id {} of \"{}\" is too large", where, id, token.content);
  token.id = static_cast<int32_t>(id);
  token.special = flag(value, "special", false, where);
  token.normalized = flag(value, "normalized", !token.special, where);
  token.single_word = flag(value, "single_word", false, where);
  token.lstrip = flag(value, "lstrip", false, where);
  token.rstrip = flag(value, "rstrip", false, where);
  return token;
}

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, const Normalizers& normalizers)
    : tokens_(std::move(tokens)) {
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const AddedToken& token = tokens_[i];
    by_id_[token.id] = i;
    if (token.normalized) {
      normalized_.add(normalizers.apply(token.content), token.id);
    } else {
      raw_.add(token.content, token.id);
    }
  }
}

bool AddedTokens::is_special(int32_t id) const {
  const auto entry = by_id_.find(id);
  return entry != by_id_.end() && tokens_[entry->second].special;
}

void AddedTokens::split(const TokenTrie& trie, std::string_view text, const Visit& visit) const {
  size_t done = 0;  // text before it was visited
  size_t from = 0;
  while (const auto match = trie.find(text, from)) {
    from = match->end;
    const AddedToken& token = tokens_[by_id_.at(match->id)];
    if (token.single_word &&
        (ends_with_word(text.substr(0, match->begin)) || starts_with_word(text.substr(match->end))))
      continue;
    size_t begin = match->begin, end = match->end;
    // Spaces that another token took already stay with it.
    if (token.lstrip) begin = std::max(done, spaces_before(text, begin, std::min(done, begin)));
    if (token.rstrip) end = spaces_behind(text, end);
    if (done < begin) visit({done, begin}, -1);
    visit({begin, end}, token.id);
    done = end;
  }
  if (done < text.size()) visit({done, text.size()}, -1);
}

}  // namespace moesaic
