#include "data/prepare.h"

#include <algorithm>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/ordered_pipeline.h"
#include "data/json_line.h"
#include "data/token_file.h"

namespace moesaic {
namespace {

/// What became of a block.
struct BlockTokens {
  std::vector<int32_t> ids;
  std::vector<size_t> ends;  // in ids, of the documents that end in the block
  int64_t num_bytes = 0, num_broken = 0;
  std::string first_broken;
};

class BlockTokenizer {
 public:
  BlockTokenizer(const Tokenizer& tokenizer, const PrepareOptions& options)
      : tokenizer_(tokenizer), options_(options), end_(tokenizer.end_of_document()) {}

  BlockTokens operator()(const TextBlock& block) const {
    BlockTokens made;
    made.num_bytes = static_cast<int64_t>(block.bytes.size());
    if (block.json_lines) {
      add_lines(block, made);
    } else {
      made.ids = tokenizer_.encode(block.bytes);
      if (block.ends_document) end_document(made);
    }
    return made;
  }

 private:
  void end_document(BlockTokens& made) const {
    if (options_.end_of_document) made.ids.push_back(end_);
    made.ends.push_back(made.ids.size());
  }

  void add_lines(const TextBlock& block, BlockTokens& made) const {
    std::string scratch;
    std::string_view text = block.bytes;
    int64_t line = block.first_line;
    if (line == 1 && text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);  // a byte order mark
    for (; !text.empty(); ++line) {
      const size_t length = std::min(text.find('\n'), text.size());
      const std::string_view one = text.substr(0, length);
      text.remove_prefix(std::min(length + 1, text.size()));
      if (one.find_first_not_of(" \t\r") == std::string_view::npos) continue;
      std::string_view document;
      try {
        document = json_string(one, options_.key, scratch);
      } catch (const IoError& error) {
        std::string what = fmt::format("{}:{}: not a line of JSON lines with text under \"{}\": {}",
                                       block.name, line, options_.key, error.what());
        if (!options_.skip_broken) throw IoError(what);
        if (made.num_broken++ == 0) made.first_broken = std::move(what);
        continue;
      }
      const std::vector<int32_t> ids = tokenizer_.encode(document);
      made.ids.insert(made.ids.end(), ids.begin(), ids.end());
      end_document(made);
    }
  }

  const Tokenizer& tokenizer_;
  const PrepareOptions& options_;
  int32_t end_;
};

DType id_type(int64_t vocab) {
  if (vocab <= 1 << 8) return DType::u8;
  return vocab <= 1 << 16 ? DType::u16 : DType::i32;
}

}  // namespace

PreparedTokens prepare_tokens(std::span<const std::string> inputs, const std::string& prefix,
                              const Tokenizer& tokenizer, const PrepareOptions& options,
                              const PrepareProgress& progress) {
  require<ConfigError>(!inputs.empty(), "no text was named for {}", prefix);
  TextBlocks blocks(inputs, options.format);
  const BlockTokenizer tokenize(tokenizer, options);
  TokenFileWriter writer(prefix, id_type(tokenizer.vocab_size()));
  PreparedTokens done;
  const auto write = [&](const BlockTokens& made) {
    std::span<const int32_t> ids = made.ids;
    size_t at = 0;
    for (const size_t end : made.ends) {
      writer.append(ids.subspan(at, end - at));
      writer.end_document();
      at = end;
    }
    writer.append(ids.subspan(at));
    done.num_documents += static_cast<int64_t>(made.ends.size());
    done.num_tokens += static_cast<int64_t>(ids.size());
    done.num_bytes += made.num_bytes;
    if (done.num_broken == 0) done.first_broken = made.first_broken;
    done.num_broken += made.num_broken;
    progress(done);
  };
  const int64_t cores = std::max<int64_t>(1, std::thread::hardware_concurrency());
  run_in_order<TextBlock, BlockTokens>(
      options.num_threads > 0 ? options.num_threads : cores, [&] { return blocks.next(); },
      [&](const TextBlock& block) { return tokenize(block); }, write);
  progress(done);
  writer.finish();
  return done;
}

}  // namespace moesaic
