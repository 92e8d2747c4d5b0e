#pragma once
// tokenizer.json, the format of Hugging Face's tokenizers (docs/formats/tokenizer.md).
#include <memory>
#include <string>
#include <string_view>

#include "data/tokenizer/tokenizer.h"

namespace moesaic {

/// What the end of a document may be called, the likeliest first.
std::string_view usual_end_token(size_t i);  // empty behind the last one

/// text: what a tokenizer.json holds. end_token: the token that ends a document; empty: the first of the usual ones
/// that the vocabulary has. `name` begins every message: IoError for a damaged file, ConfigError naming what is not
/// supported.
std::unique_ptr<Tokenizer> parse_tokenizer_json(std::string_view text, const std::string& name,
                                                const std::string& end_token);

/// Reads the file, and the token that ends a document from "eos_token" of the tokenizer_config.json beside it, if
/// there is one.
std::unique_ptr<Tokenizer> read_tokenizer_json(const std::string& path);

}  // namespace moesaic
