#include "data/byte_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace moesaic::byte_tokenizer {
namespace {

TEST(ByteTokenizer, GivesBackEveryByte) {
  std::string all;
  for (int i = 0; i < 256; ++i) all.push_back(static_cast<char>(i));
  EXPECT_EQ(decode(encode(all)), all);
  EXPECT_THAT(encode("A\xff"), testing::ElementsAre(65, 255));
}

TEST(ByteTokenizer, SkipsItsOwnTokensAndRefusesOthers) {
  EXPECT_EQ(decode(std::vector<int32_t>{kBegin, 'h', 'i', kEnd, kPad}), "hi");
  EXPECT_THROW(decode(std::vector<int32_t>{259}), ConfigError);
  EXPECT_THROW(decode(std::vector<int32_t>{-1}), ConfigError);
}

}  // namespace
}  // namespace moesaic::byte_tokenizer
