#include "data/tokenizer/tokenizer.h"

#include "base/error.h"
#include "data/byte_tokenizer.h"

namespace moesaic {
namespace {

class ByteTokenizer final : public Tokenizer {
 public:
  int64_t vocab_size() const override { return byte_tokenizer::kVocab; }
  std::vector<int32_t> encode(std::string_view text) const override { return byte_tokenizer::encode(text); }
  std::string decode(std::span<const int32_t> ids) const override { return byte_tokenizer::decode(ids); }
  int32_t end_of_document() const override { return byte_tokenizer::kEnd; }
  std::string name() const override { return "bytes"; }
};

}  // namespace

std::unique_ptr<Tokenizer> open_tokenizer(const std::string& spec) {
  require<ConfigError>(spec == "bytes", "the tokenizer must be \"bytes\", found \"{}\"", spec);
  return std::make_unique<ByteTokenizer>();
}

}  // namespace moesaic
