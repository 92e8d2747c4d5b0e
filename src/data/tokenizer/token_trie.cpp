#include "data/tokenizer/token_trie.h"

namespace moesaic {
namespace {

uint64_t edge(uint32_t node, char byte) {
  return uint64_t{node} << 8 | static_cast<unsigned char>(byte);
}

}  // namespace

void TokenTrie::add(std::string_view token, int32_t id) {
  uint32_t node = 0;
  for (const char byte : token) {
    const auto [entry, is_new] = next_.try_emplace(edge(node, byte), static_cast<uint32_t>(ends_.size()));
    if (is_new) ends_.push_back(-1);
    node = entry->second;
  }
  if (node == 0) return;
  begins_[static_cast<unsigned char>(token[0])] = true;
  if (ends_[node] < 0) ends_[node] = id;
}

std::optional<TokenTrie::Match> TokenTrie::match_at(std::string_view text, size_t at) const {
  std::optional<Match> longest;
  uint32_t node = 0;
  for (size_t i = at; i < text.size(); ++i) {
    const auto entry = next_.find(edge(node, text[i]));
    if (entry == next_.end()) break;
    node = entry->second;
    if (ends_[node] >= 0) longest = Match{at, i + 1, ends_[node]};
  }
  return longest;
}

std::optional<TokenTrie::Match> TokenTrie::find(std::string_view text, size_t from) const {
  for (size_t at = from; at < text.size(); ++at) {
    if (!begins_[static_cast<unsigned char>(text[at])]) continue;
    if (const auto match = match_at(text, at)) return match;
  }
  return std::nullopt;
}

}  // namespace moesaic
