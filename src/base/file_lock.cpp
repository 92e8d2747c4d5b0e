#include "base/file_lock.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <climits>

#include "base/error.h"
#include "base/file.h"
#include "base/file_system.h"
#include "base/log.h"

namespace moesaic {
namespace {

constexpr int64_t kMaxOwner = 4096;

std::string holder_of(const std::string& path) {
  try {
    const std::string text = read_file(path, kMaxOwner);
    return text.empty() ? "that has not said its name" : text;
  } catch (const IoError&) {
    return "whose name cannot be read";
  }
}

}  // namespace

FileLock::FileLock(std::string path, const std::string& owner)
    : files_(file_system()), path_(std::move(path)) {
  file_ = files_.open(path_, O_RDWR | O_CREAT, 0666);
  if (file_ < 0) fail_errno("create", path_);
  try {
    if (files_.lock(file_) != 0) {
      require<IoError>(errno != EWOULDBLOCK,
                       "{} is held by another job ({}): wait for it to end, or work in another folder", path_,
                       holder_of(path_));
      if (errno != ENOLCK && errno != EOPNOTSUPP && errno != ENOSYS) fail_errno("lock", path_);
      log_warning("the file system of {} has no locks: see to it that no other job works in its folder",
                  path_);
    }
    if (files_.truncate(file_, 0) != 0) fail_errno("write", path_);
    const ssize_t written = files_.write(file_, owner.data(), owner.size());
    if (written < 0) fail_errno("write", path_);
  } catch (...) {
    files_.close(file_);
    throw;
  }
}

FileLock::~FileLock() {
  files_.truncate(file_, 0);
  files_.close(file_);
}

std::string this_process() {
  char host[HOST_NAME_MAX + 1] = "";
  if (::gethostname(host, sizeof host - 1) != 0) host[0] = '\0';
  return fmt::format("host {}, process {}", host[0] == '\0' ? "unknown" : host, ::getpid());
}

}  // namespace moesaic
