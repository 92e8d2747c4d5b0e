// Every tokenizer of tests/golden/tokenizers against what its own library made of the same texts.
#include <gtest/gtest.h>

#include <sstream>

#include "base/file.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/utf8.h"

namespace moesaic {
namespace {

const std::string kFolder = MOESAIC_SOURCE_DIR "/tests/golden/tokenizers/";

std::vector<std::string> parts_of(const std::string& name, char end) {
  const std::string all = read_file(kFolder + name, 1 << 20);
  std::vector<std::string> parts;
  for (size_t at = 0; at < all.size();) {
    const size_t stop = all.find(end, at);
    parts.push_back(all.substr(at, stop - at));
    at = stop + 1;
  }
  return parts;
}

std::vector<int32_t> numbers_of(const std::string& line) {
  std::istringstream in(line);
  return {std::istream_iterator<int32_t>(in), {}};
}

class GoldenTokenizer : public testing::TestWithParam<const char*> {
 protected:
  std::string file = GetParam();
  std::string stem = file.substr(0, file.find('.'));
  std::unique_ptr<Tokenizer> tokenizer = open_tokenizer(kFolder + file);
  std::vector<std::string> texts = parts_of("corpus.bin", '\x1e');
  std::vector<std::string> ids = parts_of(stem + ".ids", '\n');
};

TEST_P(GoldenTokenizer, EncodesAsItsOwnLibrary) {
  ASSERT_EQ(texts.size(), ids.size());
  ASSERT_GT(texts.size(), 20u);
  for (size_t i = 0; i < texts.size(); ++i)
    EXPECT_EQ(tokenizer->encode(texts[i]), numbers_of(ids[i])) << texts[i];
}

TEST_P(GoldenTokenizer, DecodesAsItsOwnLibraryExceptThatBytesStayBytes) {
  const auto decoded = parts_of(stem + ".decoded", '\x1e');
  ASSERT_EQ(decoded.size(), ids.size());
  for (size_t i = 0; i < ids.size(); ++i)
    EXPECT_EQ(utf8::replace_invalid(tokenizer->decode(numbers_of(ids[i]))), decoded[i]);
}

TEST_P(GoldenTokenizer, GivesIdsBelowItsVocabularySizeAndEndsDocuments) {
  const std::string text = read_file(MOESAIC_SOURCE_DIR "/tests/data/excerpt.txt", 1 << 20);
  for (const int32_t id : tokenizer->encode(text)) ASSERT_TRUE(id >= 0 && id < tokenizer->vocab_size());
  EXPECT_GE(tokenizer->end_of_document(), 0);
  EXPECT_LT(tokenizer->end_of_document(), tokenizer->vocab_size());
}

INSTANTIATE_TEST_SUITE_P(Files, GoldenTokenizer,
                         testing::Values("gpt2.json", "bytes_missing.json", "llama3.json", "qwen2.json",
                                         "deepseek.json", "falcon.json", "llama2.json", "mistral.json",
                                         "metaspace.json", "metaspace_fused.json", "words.json",
                                         "sp_llama.model", "sp_rules.model", "sp_suffix.model"),
                         [](const auto& param) {
                           const std::string name = param.param;
                           return name.substr(0, name.find('.'));
                         });

}  // namespace
}  // namespace moesaic
