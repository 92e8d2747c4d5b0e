#pragma once
// GPT-2's way to write any bytes as printable text: each byte has a character of its own (its own where it is
// printable Latin-1, from U+0100 on where it is not). Byte-level vocabularies are written in it.
#include <optional>
#include <string>
#include <string_view>

namespace moesaic::byte_alphabet {

/// The bytes of text, written in the alphabet; twice as long at most.
std::string write(std::string_view bytes);
/// The bytes that text, valid UTF-8, stands for; nothing if a character is not of the alphabet.
std::optional<std::string> read(std::string_view text);

}  // namespace moesaic::byte_alphabet
