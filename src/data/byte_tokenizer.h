#pragma once
// The tokenizer that needs no file: a token per byte, and three more that no text can contain.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moesaic::byte_tokenizer {

inline constexpr int32_t kBegin = 256;  // before a prompt, where a model wants one
inline constexpr int32_t kEnd = 257;    // after each document
inline constexpr int32_t kPad = 258;
inline constexpr int64_t kVocab = 259;  // V

/// One id in [0, 256) per byte; nothing is added.
std::vector<int32_t> encode(std::string_view text);
/// The bytes of ids; begin, end and pad give none. ConfigError for an id outside [0, kVocab). The result is
/// UTF-8 only if the bytes are.
std::string decode(std::span<const int32_t> ids);

}  // namespace moesaic::byte_tokenizer
