#include "data/tokenizer/regex.h"

#include <gmock/gmock.h>

#include "support/thrown.h"

namespace moesaic {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> matches(const std::string& pattern, const std::string& text) {
  std::vector<TextRange> found;
  Regex(pattern, "t.json").find_all(text, {0, text.size()}, found);
  std::vector<std::string> parts;
  parts.reserve(found.size());
  for (const auto [begin, end] : found) parts.push_back(text.substr(begin, end - begin));
  return parts;
}

TEST(Regex, SeesOnlyItsRange) {
  std::vector<TextRange> found;
  Regex(R"(\s+(?!\S)|\s+)", "t").find_all("x   y", {1, 4}, found);
  EXPECT_THAT(found, ElementsAre(TextRange{1, 4}));  // y is not seen: nothing follows the spaces
}

TEST(Regex, SkipsAnEmptyMatchBehindAnother) {
  std::vector<TextRange> found;
  Regex("a*", "t").find_all("baac", {0, 4}, found);
  EXPECT_THAT(found, ElementsAre(TextRange{0, 0}, TextRange{1, 3}, TextRange{4, 4}));
}

TEST(Regex, TakesRubysClassesNotPcres) {
  EXPECT_THAT(matches(R"(\s)", "a\xE1\xA0\x8E\xC2\x85"), ElementsAre("\xC2\x85"));  // not U+180E, but U+0085
  EXPECT_THAT(matches(R"([\S])", "\xE1\xA0\x8E \n"), ElementsAre("\xE1\xA0\x8E"));
  EXPECT_THAT(matches(R"(\w+)", "e\xCC\x81 x_1 \xE2\x92\xB6 \xC2\xB2-"),  // mark, circled A, superscript
              ElementsAre("e\xCC\x81", "x_1", "\xE2\x92\xB6", "\xC2\xB2"));
  EXPECT_THAT(matches(R"(\p{Han}+)", "\xE4\xB8\xAD\xE3\x80\x81\xE6\x96\x87"),  // not the comma between
              ElementsAre("\xE4\xB8\xAD", "\xE6\x96\x87"));
  EXPECT_THAT(matches(R"(\p{L}+|\p{N}|\d)",
                      "a\xF0\xB1\x8D\x90-\xF0\x90\xB5\x80"),  // Unicode 15: U+31350; 16: U+10D40
              ElementsAre("a\xF0\xB1\x8D\x90", "\xF0\x90\xB5\x80"));
  EXPECT_THAT(matches(R"(\P{L}|[^\s\p{L}\p{N}])", "\xF0\xB1\x8D\x90"), ElementsAre());
  EXPECT_THAT(matches("^b$", "a\nb\nc"), ElementsAre("b"));
  EXPECT_THAT(matches("a.b", "a\rb a\nb"), ElementsAre("a\rb"));
  EXPECT_THAT(matches(R"(\p{L}+?x)", "aax"), ElementsAre("aax"));
}

TEST(Regex, RefusesByNameWhatTheTwoReadDifferently) {
  const auto refusal = [](const std::string& pattern) {
    return message_of<ConfigError>([&] { Regex regex(pattern, "t.json"); });
  };
  for (const char* pattern : {R"(\h)", R"(\bx)", R"(\Kx)", R"(\Gx)", R"(\N)", R"((x)\1)", R"([\W])", R"(x\)"})
    EXPECT_THAT(refusal(pattern), AllOf(HasSubstr("t.json"), HasSubstr("\\"), HasSubstr("not supported")));
  EXPECT_THAT(refusal("[a&&b]"), HasSubstr("intersection"));
  EXPECT_THAT(refusal("[a[b]]"), HasSubstr("a class in a class"));
  EXPECT_THAT(refusal("[abc"), HasSubstr("without an end"));
  EXPECT_THAT(refusal("(?m)x"), HasSubstr("(?m"));
  EXPECT_THAT(refusal("a(?i)b"), HasSubstr("(?i"));
  EXPECT_THAT(refusal("(?#x)"), HasSubstr("comment"));
  EXPECT_THAT(refusal("x{1,3}+"), HasSubstr("behind an interval"));
  EXPECT_THAT(refusal("x{,3}"), HasSubstr("lower bound"));
  EXPECT_THAT(refusal("(x"), HasSubstr("parenthesis"));
  EXPECT_THAT(refusal(std::string(70000, 'x')), HasSubstr("70000 bytes"));
  EXPECT_THAT(refusal(std::string(100, '(') + std::string(100, ')')), HasSubstr("nested"));
}

TEST(Regex, EndsAPatternThatGoesBackAndForthWithoutEnd) {
  EXPECT_THAT(message_of<ConfigError>([] { matches("(a+)+[bc]", std::string(64, 'a')); }),
              HasSubstr("64 bytes"));
}

TEST(Regex, IsLinearInARunOfSpaces) {
  const std::string text = std::string(2'000'000, ' ') + "x";
  EXPECT_EQ(matches(R"(\s*[\r\n]+|\s+(?!\S)|\s+)", text).size(), 2u);
}

}  // namespace
}  // namespace moesaic
