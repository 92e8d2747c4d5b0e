#include "data/tokenizer/byte_alphabet.h"

#include <array>

#include "data/tokenizer/utf8.h"

namespace moesaic::byte_alphabet {
namespace {

constexpr bool is_printable(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr std::array<char16_t, 256> make_characters() {
  std::array<char16_t, 256> characters{};
  char16_t next = 0x100;
  for (unsigned b = 0; b < 256; ++b) characters[b] = is_printable(b) ? static_cast<char16_t>(b) : next++;
  return characters;
}
constexpr std::array<char16_t, 256> kCharacters = make_characters();

constexpr std::array<int16_t, 0x144> make_bytes() {
  std::array<int16_t, 0x144> bytes{};
  for (auto& byte : bytes) byte = -1;
  for (unsigned b = 0; b < 256; ++b) bytes[kCharacters[b]] = static_cast<int16_t>(b);
  return bytes;
}
constexpr std::array<int16_t, 0x144> kBytes = make_bytes();

}  // namespace

std::string write(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size() + bytes.size() / 4);
  for (const char byte : bytes) utf8::append(text, kCharacters[static_cast<unsigned char>(byte)]);
  return text;
}

std::optional<std::string> read(std::string_view text) {
  std::string bytes;
  for (size_t at = 0; at < text.size();) {
    const utf8::Character c = utf8::character_at(text, at);
    if (c.code >= kBytes.size() || kBytes[c.code] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kBytes[c.code]));
    at += c.length;
  }
  return bytes;
}

}  // namespace moesaic::byte_alphabet
