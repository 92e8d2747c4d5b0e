#pragma once
// The model of type "BPE" of a tokenizer.json: a piece of text to ids, as Hugging Face's tokenizers do it.
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "data/tokenizer/merge_table.h"
#include "data/tokenizer/words.h"

namespace moesaic {

struct StringHash : std::hash<std::string_view> {
  using is_transparent = void;
};
using Vocabulary = std::unordered_map<std::string, int32_t, StringHash, std::equal_to<>>;

struct BpeOptions {
  bool byte_level = false;     // pieces are bytes; the vocabulary is written in the byte alphabet
  bool byte_fallback = false;  // an unknown character becomes the tokens <0x00> to <0xFF> of its bytes
  bool fuse_unk = false;       // neighbouring unknown characters become one token
  bool ignore_merges = false;  // a piece that is a token is that token
  std::optional<int32_t> unk;  // for an unknown character; none: it vanishes
};

class BpeModel {
 public:
  using Merges = std::vector<std::pair<std::string, std::string>>;

  /// IoError, beginning with `where`, if a merge names or makes what is no token. With byte_level every byte must
  /// have a token (has_all_bytes).
  BpeModel(const Vocabulary& vocabulary, const Merges& merges, const BpeOptions& options,
           const std::string& where);
  /// Whether each character of the byte alphabet is a token.
  static bool has_all_bytes(const Vocabulary& vocabulary);

  /// Appends the ids of a piece: valid UTF-8, or any bytes with byte_level. Pieces do not touch each other.
  void encode(std::string_view piece, std::vector<int32_t>& ids, WordScratch& scratch) const;

 private:
  void encode_word(std::string_view word, std::vector<int32_t>& ids, WordScratch& scratch) const;
  void split(std::string_view word, std::vector<int32_t>& symbols) const;

  Vocabulary vocabulary_;
  MergeTable merges_;
  BpeOptions options_;
  std::array<int32_t, 256> bytes_{};  // token of each byte, or -1
  bool cut_ = true;                   // pieces may be cut into words
};

}  // namespace moesaic
