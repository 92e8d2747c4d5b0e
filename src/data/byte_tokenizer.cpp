#include "data/byte_tokenizer.h"

#include "base/error.h"

namespace moesaic::byte_tokenizer {

std::vector<int32_t> encode(std::string_view text) {
  std::vector<int32_t> ids;
  ids.reserve(text.size());
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

std::string decode(std::span<const int32_t> ids) {
  std::string text;
  for (const int32_t id : ids) {
    require<ConfigError>(id >= 0 && id < kVocab, "the byte tokenizer has ids 0 to {}, not {}", kVocab - 1,
                         id);
    if (id < kBegin) text.push_back(static_cast<char>(id));
  }
  return text;
}

}  // namespace moesaic::byte_tokenizer
