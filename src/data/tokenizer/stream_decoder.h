#pragma once
// Text from tokens that come one at a time: whole characters as soon as they are known.
#include <span>
#include <string>
#include <vector>

#include "data/tokenizer/tokenizer.h"

namespace moesaic {

class StreamDecoder {
 public:
  /// context: the tokens before the first one, which can decide whether it begins with a space. The tokenizer must
  /// outlive the decoder.
  StreamDecoder(const Tokenizer& tokenizer, std::span<const int32_t> context);

  /// What the token adds to the text. A token may end within a character: its first bytes come with the token that
  /// completes it, or shows that it is none.
  std::string push(int32_t id);
  /// The bytes that were held back.
  std::string finish();

 private:
  void shorten();

  const Tokenizer& tokenizer_;
  std::vector<int32_t> ids_;  // the last tokens
  size_t done_ = 0;           // bytes of their text that were given out
};

}  // namespace moesaic
