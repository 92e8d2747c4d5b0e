#pragma once
// The system calls behind base/file.h, in one place, so that tests can put another system there: one that fails at a chosen
// call, is slow, or forgets at a power loss what was not synced (tests/support/faulty_files.h, memory_files.h).
//
// Each method is the call of its name as POSIX states it: result, errno, and all. The class itself is the real system.
#include <sys/stat.h>
#include <sys/types.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace moesaic {

/// Threads share it.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  virtual int open(const std::string& path, int flags, mode_t mode = 0);
  virtual int close(int file);
  virtual ssize_t pread(int file, void* to, size_t bytes, off_t offset);
  virtual ssize_t write(int file, const void* from, size_t bytes);
  virtual int truncate(int file, off_t bytes);
  virtual int fsync(int file);
  virtual int fstat(int file, struct stat& info);
  /// flock(LOCK_EX | LOCK_NB).
  virtual int lock(int file);

  virtual int stat(const std::string& path, struct stat& info);
  virtual int lstat(const std::string& path, struct stat& info);
  virtual int rename(const std::string& from, const std::string& to);
  virtual int unlink(const std::string& path);
  virtual int mkdir(const std::string& path, mode_t mode);
  virtual int rmdir(const std::string& path);
  /// Adds the names in a folder, without "." and "..", in any order.
  virtual int list(const std::string& path, std::vector<std::string>& names);
};

/// The system in force: the real one, unless a test says otherwise. What was opened in a system stays there.
FileSystem& file_system();

/// For tests only: puts `other` in force for every thread while it lives. Nothing may be reading or writing files when it
/// begins or ends.
class ReplacedFileSystem {
 public:
  explicit ReplacedFileSystem(FileSystem& other);
  ~ReplacedFileSystem();
  ReplacedFileSystem(const ReplacedFileSystem&) = delete;
  ReplacedFileSystem& operator=(const ReplacedFileSystem&) = delete;

 private:
  FileSystem& before_;
};

/// Throws IoError "cannot <operation> <path>: <reason>", with advice where the reason has some.
[[noreturn]] void fail_system(std::string_view operation, const std::string& path, std::error_code code);
/// The same for errno.
[[noreturn]] void fail_errno(std::string_view operation, const std::string& path);

}  // namespace moesaic
