#include "base/input.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace moesaic {
namespace {

[[noreturn]] void fail_errno(std::string_view operation, const std::string& path) {
  fail<IoError>("cannot {} {}: {}", operation, path,
                std::error_code(errno, std::generic_category()).message());
}

int open_for_reading(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) fail_errno("open", path);
  return file;
}

}  // namespace

InputFile::InputFile(std::string path) : path_(std::move(path)), file_(open_for_reading(path_)) {
  struct stat info {};
  const int failed = ::fstat(file_, &info);
  if (failed == 0 && S_ISREG(info.st_mode)) {
    size_ = info.st_size;
    return;
  }
  const int error = errno;
  ::close(file_);
  require<IoError>(failed != 0, "cannot read {}: it is not a regular file", path_);
  errno = error;
  fail_errno("inspect", path_);
}

InputFile::~InputFile() {
  ::close(file_);
}

void InputFile::read(int64_t offset, std::span<std::byte> out, std::string_view what) const {
  const auto count = static_cast<int64_t>(out.size());
  require<IoError>(offset >= 0 && offset <= size_ && count <= size_ - offset,
                   "{}: {} needs {} bytes at {}, but the file has {} bytes: it is cut short or damaged",
                   path_, what, count, offset, size_);
  size_t done = 0;
  while (done < out.size()) {
    const ssize_t got =
        ::pread(file_, out.data() + done, out.size() - done, offset + static_cast<int64_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_errno("read", path_);
    require<IoError>(got > 0,
                     "{}: {} needs {} bytes at {}, but the file, which had {} bytes, was cut while in use",
                     path_, what, count, offset, size_);
    done += static_cast<size_t>(got);
  }
}

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
