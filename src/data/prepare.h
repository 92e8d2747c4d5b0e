#pragma once
// Text to tokens, with the tokenizer that needs no file.
#include <cstdint>
#include <span>
#include <string>

namespace moesaic {

struct PreparedTokens {
  int64_t num_documents = 0;
  int64_t num_tokens = 0;
};

/// Writes each text file as one document of byte tokens with kEnd after it, in the order given, to
/// "<prefix>.bin" and
/// "<prefix>.idx". Streams: memory does not grow with the text. ConfigError if no file is named; IoError if
/// one cannot be read, and then nothing is written.
PreparedTokens prepare_text(std::span<const std::string> text_files, const std::string& prefix);

}  // namespace moesaic
