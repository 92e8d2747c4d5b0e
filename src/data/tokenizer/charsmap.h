#pragma once
// SentencePiece's "precompiled_charsmap": rules that replace the longest prefix they know, as a double-array trie
// (darts-clone) of prefixes and a block of replacements that end in NUL.
// Layout, little-endian: uint32 size of the trie in bytes; the trie, uint32 units; the replacements.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moesaic {

class Charsmap {
 public:
  /// blob: empty, or a map. IoError, beginning with `where`, if the sizes do not fit.
  Charsmap(std::string_view blob, const std::string& where);

  struct Rule {
    size_t length;                 // of the prefix, in bytes
    std::string_view replacement;  // lives as long as the map
  };
  /// The rule for the longest prefix of text. Whatever a damaged trie says, nothing outside of it is read.
  std::optional<Rule> longest(std::string_view text) const;

 private:
  std::vector<uint32_t> units_;
  std::string replacements_;
};

}  // namespace moesaic
