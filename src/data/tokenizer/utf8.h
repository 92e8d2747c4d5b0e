#pragma once
// UTF-8, one character at a time, and what becomes of bytes that are not UTF-8.
#include <cstdint>
#include <string>
#include <string_view>

namespace moesaic::utf8 {

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

/// A character of a text: its code point and its length in bytes.
struct Character {
  char32_t code;
  uint32_t length;
};

/// The character at `at`, which is the start of one in valid UTF-8.
inline Character character_at(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[at + i])); };
  const char32_t b = byte(0);
  if (b < 0x80) return {b, 1};
  if (b < 0xE0) return {(b & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (b < 0xF0) return {(b & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(b & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F), 4};
}

/// The start of the character that ends before `end` (> 0), in valid UTF-8.
inline size_t character_before(std::string_view text, size_t end) {
  do --end;
  while ((static_cast<unsigned char>(text[end]) & 0xC0) == 0x80);
  return end;
}

/// A sequence at `at` of bytes that may be anything: its length, and whether it is a character. When it is not,
/// `length` is that of the longest start of a character that stands there, at least 1 (Unicode's "maximal
/// subpart", which Python's errors="replace" replaces as one).
struct Sequence {
  uint32_t length;
  bool valid;
  bool cut;  // not valid only because the text ends
};
Sequence sequence_at(std::string_view bytes, size_t at);

/// Length of the valid UTF-8 that bytes begin with.
size_t valid_length(std::string_view bytes);

/// The bytes with every sequence that is not a character replaced by U+FFFD.
std::string replace_invalid(std::string_view bytes);

void append(std::string& text, char32_t code);

/// Unicode's White_Space.
bool is_space(char32_t code);

}  // namespace moesaic::utf8
