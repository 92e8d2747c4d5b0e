#include "config/data_blend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/thrown.h"

namespace moesaic {
namespace {

using testing::HasSubstr;

std::string error_of(const std::string& text) {
  return message_of([&] { parse_blend(text); });
}

TEST(DataBlend, OnePathIsAnyTextThatDoesNotBeginWithANumberAndABlank) {
  for (const char* path : {"a", "build/my data, second/books", "0.7", "3books", "1e5/x", "nan/a", ""}) {
    const auto parts = parse_blend(path);
    ASSERT_EQ(parts.size(), 1u) << path;
    EXPECT_EQ(parts[0].path, path);
    EXPECT_EQ(parts[0].weight, 1);
  }
}

TEST(DataBlend, TakesWeightsAndPathsInTurn) {
  const auto parts = parse_blend(" 0.7 build/my books ,\n  3e-1\tcode,12345678901 web ");
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[0].path, "build/my books");
  EXPECT_EQ(parts[0].weight, 0.7);
  EXPECT_EQ(parts[1].path, "code");
  EXPECT_EQ(parts[1].weight, 0.3);
  EXPECT_EQ(parts[2].weight, 12345678901.0);
}

TEST(DataBlend, SaysWhatIsWrong) {
  EXPECT_THAT(error_of("0.7 a, b"), HasSubstr("\"b\" is no part of a blend: expected \"WEIGHT PATH"));
  EXPECT_THAT(error_of("0.7 a,"), HasSubstr("\"\" is no part"));
  EXPECT_THAT(error_of("0.7 , 0.3 b"), HasSubstr("no part of a blend"));
  EXPECT_THAT(error_of("0 a, 1 b"), HasSubstr("the weight of a is 0: expected a number above 0"));
  EXPECT_THAT(error_of("1 a, -1 b"), HasSubstr("the weight of b is -1"));
  EXPECT_THAT(error_of("1 a, nan b"), HasSubstr("the weight of b"));
  EXPECT_THAT(error_of("1 a, inf b"), HasSubstr("the weight of b"));
  EXPECT_THAT(error_of("1 a, 1e999 b"), HasSubstr("the weight of b"));
  EXPECT_THAT(error_of("1 a, 2 a"), HasSubstr("names a twice"));
  std::string many = "1 a";
  for (int i = 0; i < 256; ++i) many += fmt::format(", 1 b{}", i);
  EXPECT_THAT(error_of(many), HasSubstr("more than 256"));
}

}  // namespace
}  // namespace moesaic
