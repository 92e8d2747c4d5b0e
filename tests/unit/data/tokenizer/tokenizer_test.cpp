#include "data/tokenizer/tokenizer.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "support/thrown.h"

namespace moesaic {
namespace {

TEST(OpenTokenizer, GivesBytesWithoutAFile) {
  const auto tokenizer = open_tokenizer("bytes");
  EXPECT_EQ(tokenizer->name(), "bytes");
  EXPECT_EQ(tokenizer->vocab_size(), 259);
  EXPECT_EQ(tokenizer->end_of_document(), 257);
  EXPECT_THAT(tokenizer->encode("a\xff"), testing::ElementsAre('a', 255));
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{'h', 'i', 257}), "hi");
}

}  // namespace
}  // namespace moesaic
