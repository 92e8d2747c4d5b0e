#include "data/tokenizer/utf8.h"

#include <gtest/gtest.h>

namespace moesaic::utf8 {
namespace {

const std::string kMark(kReplacement);

TEST(ReplaceInvalid, ReplacesTheLongestStartOfACharacterAsOne) {  // as Python's errors="replace" does
  EXPECT_EQ(replace_invalid("caf\xC3\xA9"), "caf\xC3\xA9");
  EXPECT_EQ(replace_invalid("a\x80\xBFz"), "a" + kMark + kMark + "z");
  EXPECT_EQ(replace_invalid("\xE2\x82y"), kMark + "y");
  EXPECT_EQ(replace_invalid("\xF0\x9F\x98z"), kMark + "z");
  EXPECT_EQ(replace_invalid("\xF0\x9F\x98"), kMark);
  EXPECT_EQ(replace_invalid("\xC0\xAF"), kMark + kMark);              // overlong
  EXPECT_EQ(replace_invalid("\xE0\x80\xAF"), kMark + kMark + kMark);  // overlong
  EXPECT_EQ(replace_invalid("\xED\xA0\x80"), kMark + kMark + kMark);  // a surrogate
  EXPECT_EQ(replace_invalid("\xF4\x90\x80\x80"), kMark + kMark + kMark + kMark);
  EXPECT_EQ(replace_invalid("\xF5\xFF"), kMark + kMark);
}

TEST(ValidLength, StopsWhereAFaultBegins) {
  EXPECT_EQ(valid_length(""), 0u);
  EXPECT_EQ(valid_length("0123456789abcdef\xC3\xA9"), 18u);
  EXPECT_EQ(valid_length("0123456789abcdef\xC3"), 16u);
  EXPECT_EQ(valid_length("0123456\xFF"), 7u);
}

TEST(SequenceAt, SaysWhenOnlyTheEndOfTheTextIsAtFault) {
  EXPECT_TRUE(sequence_at("\xE2\x82", 0).cut);
  EXPECT_FALSE(sequence_at("\xE2\x28", 0).cut);
  EXPECT_FALSE(sequence_at("\xFF", 0).cut);
}

TEST(Append, GivesBackEveryCharacter) {
  for (const char32_t code : {0x0u, 0x7Fu, 0x80u, 0x7FFu, 0x800u, 0xFFFDu, 0xFFFFu, 0x10000u, 0x10FFFFu}) {
    std::string text;
    append(text, code);
    ASSERT_EQ(valid_length(text), text.size());
    EXPECT_EQ(character_at(text, 0).code, code);
    EXPECT_EQ(character_at(text, 0).length, text.size());
    EXPECT_EQ(character_before("x" + text, 1 + text.size()), 1u);
  }
}

}  // namespace
}  // namespace moesaic::utf8
