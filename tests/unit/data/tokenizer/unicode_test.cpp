#include "data/tokenizer/unicode.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <cstdlib>
#include <random>

#include "data/tokenizer/utf8.h"

namespace moesaic::unicode {
namespace {

/// utf8proc's own way, which is right but slow on long runs of marks.
std::string reference(const std::string& text, Form form) {
  const bool compat = form == Form::nfkc || form == Form::nfkd,
             compose = form == Form::nfc || form == Form::nfkc;
  const int options =
      UTF8PROC_STABLE | (compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) | (compat ? UTF8PROC_COMPAT : 0);
  utf8proc_uint8_t* out = nullptr;
  const auto length =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &out, static_cast<utf8proc_option_t>(options));
  std::string result(reinterpret_cast<char*>(out), static_cast<size_t>(length));
  std::free(out);  // NOLINT: utf8proc allocates with malloc
  return result;
}

bool is_character(char32_t code) {
  return code < 0xD800 || (code >= 0xE000 && code < 0x110000);
}

TEST(Normalize, AgreesOnEveryCharacterBetweenTwoThatMayCombine) {
  for (char32_t code = 1; code < 0x30000; ++code) {
    if (!is_character(code)) continue;
    std::string text = "e";
    utf8::append(text, code);
    text += "\xCC\x81";  // U+0301
    ASSERT_EQ(normalize(text, Form::nfc), reference(text, Form::nfc)) << std::hex << uint32_t(code);
  }
}

TEST(Normalize, AgreesOnRandomText) {
  std::mt19937 random(7);
  const auto pick = [&](uint32_t from, uint32_t to) { return from + random() % (to - from + 1); };
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (uint32_t n = pick(1, 12); n > 0; --n) {
      switch (pick(0, 6)) {
        case 0:
          utf8::append(text, pick('a', 'z'));
          break;
        case 1:
          utf8::append(text, pick(0x300, 0x36F));
          break;
        case 2:
          utf8::append(text, pick(0x1100, 0x11FF));
          break;  // Hangul's parts
        case 3:
          utf8::append(text, pick(0xAC00, 0xAC3F));
          break;
        case 4:
          utf8::append(text, pick(0x1E00, 0x2130));
          break;
        case 5:
          utf8::append(text, pick(0x3040, 0x30FF));
          break;
        default:
          utf8::append(text, pick(0x900, 0xDFF));
          break;
      }
    }
    for (const Form form : {Form::nfc, Form::nfd, Form::nfkc, Form::nfkd})
      ASSERT_EQ(normalize(text, form), reference(text, form)) << text;
  }
}

TEST(Normalize, IsLinearInMarks) {  // sorted one by one, a million marks would take minutes
  std::string text = "a";
  for (int i = 0; i < 500'000; ++i) text += "\xCC\x81\xCC\xA3";        // above, below: the wrong order
  EXPECT_EQ(normalize(text, Form::nfc).substr(0, 3), "\xE1\xBA\xA1");  // a with dot below
}

TEST(Properties, AreThoseOfUnicode) {
  EXPECT_TRUE(is_numeric('7') && is_numeric(0xB2) && is_numeric(0x2167) && is_numeric(0x664));
  EXPECT_FALSE(is_numeric('a') || is_numeric('-') || is_numeric(0x4E00));
  EXPECT_TRUE(is_punctuation('$') && is_punctuation('~') && is_punctuation(0x2026) && is_punctuation(0x3002));
  EXPECT_FALSE(is_punctuation('a') || is_punctuation(' ') || is_punctuation(0x20AC));
  EXPECT_TRUE(is_word('_') && is_word(0x301) && is_word(0x4E00) && is_word(0x200D));
  EXPECT_FALSE(is_word('-') || is_word(' ') || is_word(0x20AC));
}

TEST(AppendLowercase, KnowsTheOneCharacterThatBecomesTwo) {
  std::string text;
  for (const char32_t code : {char32_t{'A'}, char32_t{0xC9}, char32_t{0x130}}) append_lowercase(text, code);
  EXPECT_EQ(text, "a\xC3\xA9i\xCC\x87");
}

}  // namespace
}  // namespace moesaic::unicode
