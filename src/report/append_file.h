#pragma once
// A file that only grows, and whose bytes other programs see as soon as they are appended: lines of metrics,
// TensorBoard records. (Files that appear whole or not at all are base/file.h's.)
#include <string>
#include <string_view>

namespace moesaic {

class AppendFile {
 public:
  /// Opens the file at its end and creates it where it is absent; its folder must exist. Throws IoError.
  explicit AppendFile(std::string path);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  /// Hands the bytes to the system before it returns. Throws IoError, for example on a full disk; a part of
  /// the bytes may then be in the file.
  void write(std::string_view bytes);

  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int file_ = -1;
};

}  // namespace moesaic
