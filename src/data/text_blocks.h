#pragma once
// The texts of data prepare, cut into blocks that can be tokenized on their own.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/text_stream.h"

namespace moesaic {

/// text: a file is a document. jsonl: a line is a document. automatic: jsonl for names that end in .jsonl, .ndjson or .json
/// (.zst may follow), text for all others and for standard input.
enum class TextFormat { automatic, text, jsonl };

struct TextBlock {
  std::string name;            // of the input, for messages
  int64_t first_line = 1;      // of the input, counted from 1
  bool json_lines = false;     // else a part of a document
  bool ends_document = false;  // text: nothing of this document follows
  std::string bytes;           // json_lines: whole lines
};

/// Reads inputs one after the other. The blocks depend on the bytes alone. JSON lines come in blocks of about 1 MiB; a text
/// of up to 8 MiB is one block, a longer one is cut behind line ends into such blocks (behind a character where a block has
/// no line end), so memory is bounded whatever comes.
class TextBlocks {
 public:
  static constexpr int64_t kJsonBlock = int64_t{1} << 20, kTextBlock = int64_t{1} << 23;
  static constexpr int64_t kMaxLine = int64_t{1} << 26;  // 64 MiB

  /// The inputs, "-" for standard input, must outlive this.
  TextBlocks(std::span<const std::string> inputs, TextFormat format) : inputs_(inputs), format_(format) {}

  /// The next block, or nothing after the last. IoError as TextStream, or for a line of JSON lines above kMaxLine.
  std::optional<TextBlock> next();

 private:
  bool open_next();
  size_t cut(const std::string& bytes, size_t searched) const;

  std::span<const std::string> inputs_;
  TextFormat format_;
  size_t num_opened_ = 0;
  std::optional<TextStream> stream_;  // of input num_opened_ - 1
  bool json_lines_ = false;
  int64_t line_ = 1;
  std::string rest_;  // read, but not given out
};

}  // namespace moesaic
