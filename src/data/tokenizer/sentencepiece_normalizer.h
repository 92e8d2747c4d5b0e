#pragma once
// What SentencePiece does to a text before it looks for pieces.
#include <string>
#include <string_view>

#include "data/tokenizer/charsmap.h"
#include "data/tokenizer/sentencepiece_file.h"
#include "data/tokenizer/token_trie.h"

namespace moesaic {

class SentencePieceNormalizer {
 public:
  /// Both must outlive the normalizer. user_defined: symbols that are left as they are.
  SentencePieceNormalizer(const SentencePieceFile& file, const TokenTrie& user_defined,
                          const std::string& where)
      : file_(file), user_defined_(user_defined), charsmap_(file.charsmap, where) {}

  /// Characters replaced as the charsmap says, spaces written as U+2581, one put before (or behind) the text, and
  /// spaces at the ends and repeated ones dropped, as far as the model asks for each. text: valid UTF-8.
  std::string apply(std::string_view text) const;

 private:
  /// What the text begins with becomes `to`; `length` bytes are used up.
  struct Prefix {
    std::string_view to;
    size_t length;
  };
  Prefix prefix_of(std::string_view text) const;

  const SentencePieceFile& file_;
  const TokenTrie& user_defined_;
  Charsmap charsmap_;
};

}  // namespace moesaic
