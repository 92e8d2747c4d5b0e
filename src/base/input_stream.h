#pragma once
// Input that need not be a regular file (those: file.h).
#include <cstddef>
#include <span>
#include <string>

namespace moesaic {

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
