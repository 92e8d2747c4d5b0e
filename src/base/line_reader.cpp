#include "base/line_reader.h"

#include <algorithm>

#include "base/error.h"

namespace moesaic {
namespace {

constexpr int64_t kBlock = int64_t{1} << 20;

}  // namespace

std::optional<std::string_view> LineReader::next() {
  size_t searched = begin_;
  for (;;) {
    const size_t end = block_.find('\n', searched);
    if (end != std::string::npos) {
      const std::string_view line = std::string_view(block_).substr(begin_, end - begin_);
      begin_ = end + 1;
      position_ += static_cast<int64_t>(line.size()) + 1;
      whole_ = true;
      return line;
    }
    block_.erase(0, begin_);
    begin_ = 0;
    searched = block_.size();
    const int64_t more = std::min(kBlock, file_.size() - read_);
    if (more == 0) break;
    require<IoError>(static_cast<int64_t>(block_.size()) < kMaxLine,
                     "{}: the line at byte {} is longer than {} bytes: not a file of lines", file_.path(),
                     position_, kMaxLine);
    block_.resize(searched + static_cast<size_t>(more));
    file_.read(read_, std::as_writable_bytes(std::span(block_).subspan(searched)), "the next lines");
    read_ += more;
  }
  if (block_.empty()) return std::nullopt;
  whole_ = false;
  position_ += static_cast<int64_t>(block_.size());
  begin_ = block_.size();
  return block_;
}

}  // namespace moesaic
