#include "data/text_blocks.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"

namespace moesaic {
namespace {

bool names_json_lines(std::string_view path) {
  if (path.ends_with(".zst")) path.remove_suffix(4);
  return path.ends_with(".jsonl") || path.ends_with(".ndjson") || path.ends_with(".json");
}

/// Where the last whole UTF-8 character of text ends, looking no further back than a character can reach.
size_t character_end(const std::string& text) {
  for (size_t back = 1; back <= 3 && back < text.size(); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xc0) == 0x80) continue;
    const size_t length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    return length > back ? text.size() - back : text.size();
  }
  return text.size();
}

}  // namespace

bool TextBlocks::open_next() {
  if (num_opened_ == inputs_.size()) return false;
  const std::string& path = inputs_[num_opened_++];
  stream_.emplace(path);
  json_lines_ = format_ == TextFormat::jsonl || (format_ == TextFormat::automatic && names_json_lines(path));
  line_ = 1;
  rest_.clear();
  return true;
}

/// Where a full block ends; 0: no line ends in it yet. Nothing before `searched` ends a line.
size_t TextBlocks::cut(const std::string& bytes, size_t searched) const {
  const size_t end = std::string_view(bytes).substr(searched).rfind('\n');
  if (end != std::string_view::npos) return searched + end + 1;
  return json_lines_ ? 0 : character_end(bytes);
}

std::optional<TextBlock> TextBlocks::next() {
  for (;;) {
    if (!stream_ && !open_next()) return std::nullopt;
    TextBlock block{stream_->name(), line_, json_lines_, false, std::move(rest_)};
    rest_.clear();
    std::string& bytes = block.bytes;
    size_t end = 0, searched = 0;  // a rest holds no line end, or is less than a block
    while (end == 0) {
      const auto step = static_cast<size_t>(json_lines_ ? kJsonBlock : kTextBlock);
      const size_t before = bytes.size(), wanted = before < step ? step : before + step;
      bytes.resize(wanted);
      const size_t got = stream_->read(std::span(bytes).subspan(before));
      bytes.resize(before + got);
      if (before + got < wanted) {
        block.ends_document = true;
        end = bytes.size();
        break;
      }
      end = cut(bytes, searched);
      searched = bytes.size();
      require<IoError>(end > 0 || static_cast<int64_t>(bytes.size()) <= kMaxLine,
                       "{}:{}: the line is longer than {} MiB, the most that a line of JSON lines may be",
                       block.name, line_, kMaxLine >> 20);
    }
    if (block.ends_document) {
      stream_.reset();
      if (json_lines_ && bytes.empty()) continue;
    } else {
      rest_ = bytes.substr(end);
      bytes.resize(end);
      if (json_lines_) line_ += std::count(bytes.begin(), bytes.end(), '\n');
    }
    return block;
  }
}

}  // namespace moesaic
