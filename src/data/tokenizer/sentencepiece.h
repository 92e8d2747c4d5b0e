#pragma once
// SentencePiece's .model files of type BPE (docs/formats/tokenizer.md).
#include <memory>
#include <string>
#include <string_view>

#include "data/tokenizer/tokenizer.h"

namespace moesaic {

/// bytes: a serialised ModelProto. `name` begins every message: IoError for a damaged file, ConfigError naming what is
/// not supported.
std::unique_ptr<Tokenizer> parse_sentencepiece(std::string_view bytes, const std::string& name);
std::unique_ptr<Tokenizer> read_sentencepiece(const std::string& path);

}  // namespace moesaic
