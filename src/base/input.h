#pragma once
// Reading files piece by piece, where mapping them (file.h) would be wrong: a file that others may shorten meanwhile, and
// input that is no regular file. A read that finds less than it must is an IoError, never a signal.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace moesaic {

/// A regular file read at any offset. Threads may share one.
class InputFile {
 public:
  /// Throws IoError if the file is missing or not a regular file.
  explicit InputFile(std::string path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  /// Bytes when it was opened.
  int64_t size() const { return size_; }
  /// Fills `out` from `offset`. IoError naming `what` unless all of it lies inside size() (any int64 is safe) and the file
  /// still holds it.
  void read(int64_t offset, std::span<std::byte> out, std::string_view what) const;

 private:
  std::string path_;
  int file_;
  int64_t size_ = 0;
};

/// Bytes in order, from a file, a pipe or standard input.
class InputStream {
 public:
  /// "-" is standard input. Throws IoError if the path cannot be opened or is a folder.
  explicit InputStream(const std::string& path);
  ~InputStream();
  InputStream(const InputStream&) = delete;
  InputStream& operator=(const InputStream&) = delete;

  /// For messages: the path, or "standard input".
  const std::string& name() const { return name_; }
  /// Fills as much of `out` as there is: less than all of it only at the end.
  size_t read(std::span<std::byte> out);

 private:
  std::string name_;
  int file_;
};

}  // namespace moesaic
