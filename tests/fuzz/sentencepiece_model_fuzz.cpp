// SentencePiece's .model: a file that says anything. What opens must encode and decode any text without a fault, or end in one
// of our messages; ids stay inside the vocabulary.
#include <cstdint>
#include <cstdlib>

#include "base/error.h"
#include "data/tokenizer/sentencepiece.h"

using namespace moesaic;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view file(reinterpret_cast<const char*>(data), size);
  try {
    const auto tokenizer = parse_sentencepiece(file, "fuzz");
    for (const std::string_view text :
         {std::string_view(" a  bc\t12 \xC3\xA9\xE2\x96\x81\xFF <s>x "), file}) {
      const auto ids = tokenizer->encode(text);
      for (const int32_t id : ids)
        if (id < 0 || id >= tokenizer->vocab_size()) std::abort();
      (void)tokenizer->decode(ids);
    }
  } catch (const Error&) {
  }
  return 0;
}
