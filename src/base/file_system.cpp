#include "base/file_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "base/error.h"

namespace moesaic {
namespace {

FileSystem& real_files() {
  static FileSystem real;
  return real;
}

/// The one mutable global: a seam for tests, which no code of ours sets. Null: the real system.
std::atomic<FileSystem*> replacement{nullptr};

}  // namespace

FileSystem& file_system() {
  FileSystem* other = replacement.load(std::memory_order_acquire);
  return other == nullptr ? real_files() : *other;
}

ReplacedFileSystem::ReplacedFileSystem(FileSystem& other) : before_(file_system()) {
  replacement.store(&other, std::memory_order_release);
}
ReplacedFileSystem::~ReplacedFileSystem() {
  replacement.store(&before_, std::memory_order_release);
}

void fail_system(std::string_view operation, const std::string& path, std::error_code code) {
  std::string_view advice;
  if (code == std::errc::no_space_on_device)
    advice = "; free some space there or choose another folder";
  else if (code == std::errc::read_only_file_system || code == std::errc::permission_denied)
    advice = "; choose a folder that this user may write to, or change its permissions";
  fail<IoError>("cannot {} {}: {}{}", operation, path, code.message(), advice);
}

void fail_errno(std::string_view operation, const std::string& path) {
  fail_system(operation, path, std::error_code(errno, std::generic_category()));
}

int FileSystem::open(const std::string& path, int flags, mode_t mode) {
  return ::open(path.c_str(), flags | O_CLOEXEC, mode);
}
int FileSystem::close(int file) {
  return ::close(file);
}
ssize_t FileSystem::pread(int file, void* to, size_t bytes, off_t offset) {
  return ::pread(file, to, bytes, offset);
}
ssize_t FileSystem::write(int file, const void* from, size_t bytes) {
  return ::write(file, from, bytes);
}
int FileSystem::truncate(int file, off_t bytes) {
  return ::ftruncate(file, bytes);
}
int FileSystem::fsync(int file) {
  return ::fsync(file);
}
int FileSystem::fstat(int file, struct stat& info) {
  return ::fstat(file, &info);
}
int FileSystem::lock(int file) {
  return ::flock(file, LOCK_EX | LOCK_NB);
}
int FileSystem::stat(const std::string& path, struct stat& info) {
  return ::stat(path.c_str(), &info);
}
int FileSystem::lstat(const std::string& path, struct stat& info) {
  return ::lstat(path.c_str(), &info);
}
int FileSystem::rename(const std::string& from, const std::string& to) {
  return ::rename(from.c_str(), to.c_str());
}
int FileSystem::unlink(const std::string& path) {
  return ::unlink(path.c_str());
}
int FileSystem::mkdir(const std::string& path, mode_t mode) {
  return ::mkdir(path.c_str(), mode);
}
int FileSystem::rmdir(const std::string& path) {
  return ::rmdir(path.c_str());
}

int FileSystem::list(const std::string& path, std::vector<std::string>& names) {
  DIR* folder = ::opendir(path.c_str());
  if (folder == nullptr) return -1;
  errno = 0;
  for (const dirent* entry = ::readdir(folder); entry != nullptr; entry = ::readdir(folder)) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  const int error = errno;
  ::closedir(folder);
  errno = error;
  return error == 0 ? 0 : -1;
}

}  // namespace moesaic
