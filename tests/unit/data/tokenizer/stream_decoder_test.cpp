#include "data/tokenizer/stream_decoder.h"

#include <gmock/gmock.h>

#include "base/file.h"
#include "data/tokenizer/utf8.h"

namespace moesaic {
namespace {

const std::string kFolder = MOESAIC_SOURCE_DIR "/tests/golden/tokenizers/";

TEST(StreamDecoder, HoldsBackTheBytesOfACharacterThatIsNotWhole) {
  const auto bytes = open_tokenizer("bytes");
  StreamDecoder decoder(*bytes, {});
  EXPECT_EQ(decoder.push('a'), "a");
  EXPECT_EQ(decoder.push(0xE2), "");
  EXPECT_EQ(decoder.push(0x82), "");
  EXPECT_EQ(decoder.push(0xAC), "\xE2\x82\xAC");
  EXPECT_EQ(decoder.push(0xC3), "");
  EXPECT_EQ(decoder.push('x'), "\xC3x");  // never to become whole
  EXPECT_EQ(decoder.push(0xFF), "\xFF");
  EXPECT_EQ(decoder.push(257), "");
  EXPECT_EQ(decoder.push(0xF0), "");
  EXPECT_EQ(decoder.finish(), "\xF0");
  EXPECT_EQ(decoder.finish(), "");
}

TEST(StreamDecoder, KeepsTheSpaceBetweenThePromptAndWhatFollows) {
  for (const char* name : {"llama2.json", "mistral.json", "sp_llama.model", "metaspace.json", "gpt2.json"}) {
    const auto tokenizer = open_tokenizer(kFolder + name);
    const auto all = tokenizer->encode("Hello the world");
    const std::string whole = tokenizer->decode(all);
    for (size_t prompt = 0; prompt <= all.size(); ++prompt) {
      const std::span<const int32_t> ids(all);
      std::string text = tokenizer->decode(ids.first(prompt));
      StreamDecoder decoder(*tokenizer, ids.first(prompt));
      for (const int32_t id : ids.subspan(prompt)) text += decoder.push(id);
      EXPECT_EQ(text + decoder.finish(), whole) << name << ' ' << prompt;
    }
  }
}

TEST(StreamDecoder, GivesLongTextInWholeCharacters) {
  const std::string text = read_file(kFolder + "corpus.bin", 1 << 20);
  for (const char* name :
       {"gpt2.json", "llama2.json", "bytes_missing.json", "sp_llama.model", "sp_suffix.model"}) {
    const auto tokenizer = open_tokenizer(kFolder + name);
    const auto ids = tokenizer->encode(text);
    StreamDecoder decoder(*tokenizer, {});
    std::string streamed;
    for (const int32_t id : ids) {
      const std::string part = decoder.push(id);
      if (std::string_view(name) == "gpt2.json") {
        EXPECT_EQ(utf8::valid_length(part), part.size());
      }
      streamed += part;
    }
    EXPECT_EQ(streamed + decoder.finish(), tokenizer->decode(ids)) << name;
  }
}

}  // namespace
}  // namespace moesaic
