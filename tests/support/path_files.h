#pragma once
// The real file system with something done before files of a chosen path are opened: to wait there, fail there, or die there.
#include <cerrno>
#include <functional>
#include <string>

#include "base/file_system.h"

namespace moesaic {

class PathFiles : public FileSystem {
 public:
  /// `before_open` is called with every path that is opened, by the thread that opens it; not 0: the open fails with that
  /// errno.
  explicit PathFiles(std::function<int(const std::string& path)> before_open)
      : before_open_(std::move(before_open)) {}

  int open(const std::string& path, int flags, mode_t mode) override {
    if (const int error = before_open_(path); error != 0) {
      errno = error;
      return -1;
    }
    return FileSystem::open(path, flags, mode);
  }

 private:
  std::function<int(const std::string& path)> before_open_;
};

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace moesaic
