#pragma once
// The lines of a text file, one after another, in memory for one block and the longest line.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/file.h"

namespace moesaic {

class LineReader {
 public:
  /// Throws IoError if the file is missing or not a regular file.
  explicit LineReader(const std::string& path) : file_(path) {}

  /// The next line without its newline, valid until the next call; nothing at the end. IoError for a line of more than
  /// kMaxLine bytes, and when the file is cut while it is read.
  std::optional<std::string_view> next();
  /// Whether the line last returned ended in a newline.
  bool whole() const { return whole_; }
  /// The place in the file behind it.
  int64_t position() const { return position_; }

  static constexpr int64_t kMaxLine = int64_t{256} << 20;

 private:
  InputFile file_;
  std::string block_;  // read and not returned, from begin_
  size_t begin_ = 0;
  int64_t read_ = 0;  // bytes of the file
  int64_t position_ = 0;
  bool whole_ = false;
};

}  // namespace moesaic
