#pragma once
// Whole tokens found in a text, whatever the model would make of it: special tokens, user-defined symbols.
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace moesaic {

/// A set of byte strings with ids. Finding takes time linear in the text, times at most the longest token.
class TokenTrie {
 public:
  struct Match {
    size_t begin, end;
    int32_t id;
  };

  /// Adds a token that is not empty; one that was added before keeps its id.
  void add(std::string_view token, int32_t id);
  bool empty() const { return ends_.size() == 1; }
  /// The longest token at `at`.
  std::optional<Match> match_at(std::string_view text, size_t at) const;
  /// The first place from `from` on where a token stands, and the longest one there.
  std::optional<Match> find(std::string_view text, size_t from) const;

 private:
  std::unordered_map<uint64_t, uint32_t> next_;  // (node, byte) -> node
  std::vector<int32_t> ends_{-1};                // of each node: the id of the token that ends there, or -1
  std::array<bool, 256> begins_{};               // bytes that a token begins with
};

}  // namespace moesaic
