#include "data/prepare.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "data/byte_tokenizer.h"
#include "data/token_file.h"

namespace moesaic {
namespace {

constexpr int64_t kChunkBytes = int64_t{1} << 20;

}  // namespace

PreparedTokens prepare_text(std::span<const std::string> text_files, const std::string& prefix) {
  require<ConfigError>(!text_files.empty(), "no text file was named for {}", prefix);
  TokenFileWriter writer(prefix, DType::u16);
  PreparedTokens done;
  for (const std::string& path : text_files) {
    const MappedFile text(path);
    for (int64_t at = 0; at < text.size(); at += kChunkBytes) {
      const auto chunk = text.range(at, std::min(kChunkBytes, text.size() - at), "the text");
      writer.append(byte_tokenizer::encode({reinterpret_cast<const char*>(chunk.data()), chunk.size()}));
    }
    writer.append({&byte_tokenizer::kEnd, 1});
    writer.end_document();
    ++done.num_documents;
    done.num_tokens += text.size() + 1;
  }
  writer.finish();
  return done;
}

}  // namespace moesaic
