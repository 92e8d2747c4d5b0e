#include "report/append_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace moesaic {
namespace {

std::string reason() {
  return std::error_code(errno, std::generic_category()).message();
}

}  // namespace

AppendFile::AppendFile(std::string path)
    : path_(std::move(path)), file_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
  require<IoError>(file_ >= 0, "cannot open {} to append to it: {}", path_, reason());
}

AppendFile::~AppendFile() {
  ::close(file_);
}

void AppendFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(file_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    require<IoError>(count >= 0, "cannot append to {}: {}", path_, reason());
    bytes.remove_prefix(static_cast<size_t>(count));
  }
}

}  // namespace moesaic
