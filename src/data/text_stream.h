#pragma once
// Text from outside as a stream of bytes: plain or compressed with zstd, from a file, a pipe or standard input.
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/input_stream.h"

namespace moesaic {

class TextStream {
 public:
  /// "-" is standard input. What begins like zstd is decompressed. IoError for a path that cannot be read, for a name in
  /// .zst whose bytes are not zstd, and for gzip, which is not read.
  explicit TextStream(const std::string& path);
  ~TextStream();

  /// For messages.
  const std::string& name() const { return input_.name(); }
  /// Fills as much of `out` as there is: less than all of it only at the end. IoError for data that are damaged, cut short,
  /// or need a window above 128 MiB, the most that is ever allocated for one stream.
  size_t read(std::span<char> out);

 private:
  struct Decoder;
  void refill();

  InputStream input_;
  std::vector<std::byte> buffer_;
  size_t at_ = 0, filled_ = 0;  // of buffer_
  std::unique_ptr<Decoder> decoder_;
};

}  // namespace moesaic
