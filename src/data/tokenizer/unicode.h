#pragma once
// Properties and normal forms of characters (Unicode 15, from utf8proc).
#include <string>
#include <string_view>

namespace moesaic::unicode {

enum class Form { nfc, nfd, nfkc, nfkd };

/// Valid UTF-8 in a normal form. Time is linear, up to sorting the marks that follow one character.
std::string normalize(std::string_view text, Form form);

bool is_numeric(char32_t code);      // categories Nd, Nl, No
bool is_punctuation(char32_t code);  // categories P*, and ASCII's signs ($+<=>^`|~ too)
/// What regular expressions call a word character: alphabetic, marks, decimal digits, connectors, joiners.
bool is_word(char32_t code);
/// Appends the lower case of one character, without regard to its neighbours.
void append_lowercase(std::string& text, char32_t code);

}  // namespace moesaic::unicode
