#include "base/input_stream.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "base/file_system.h"

namespace moesaic {
namespace {

int open_for_reading(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) fail_errno("open", path);
  return file;
}

}  // namespace

InputStream::InputStream(const std::string& path)
    : name_(path == "-" ? "standard input" : path),
      file_(path == "-" ? STDIN_FILENO : open_for_reading(path)) {}

InputStream::~InputStream() {
  if (file_ != STDIN_FILENO) ::close(file_);
}

size_t InputStream::read(std::span<std::byte> out) {
  size_t done = 0;
  while (done < out.size()) {
    const ssize_t got = ::read(file_, out.data() + done, out.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_errno("read", name_);  // a folder: "Is a directory"
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

}  // namespace moesaic
