#pragma once
// Files that fail at a chosen call: what a disk, a full volume or the death of the process does to a program.
//
//   FaultyFiles files(below);               // below: the real FileSystem, or MemoryFiles
//   const ReplacedFileSystem in_force(files);
//   save(...); const int64_t calls = files.calls();
//   files.arm({.kind = Fault::death, .call = k}); ...
#include <fcntl.h>

#include <atomic>
#include <cerrno>

#include "base/file_system.h"

namespace moesaic {

struct Fault {
  enum Kind {
    none,
    io_error,     // this one call fails with EIO
    short_write,  // this call, if it writes, takes half of what it was given; any other call is left alone
    full,         // from this call on, whatever needs space fails with ENOSPC
    death,        // from this call on nothing is done any more, clean-up included
  };
  Kind kind = none;
  int64_t call = 0;  // counted from 0, since arm()
};

class FaultyFiles : public FileSystem {
 public:
  explicit FaultyFiles(FileSystem& below) : below_(below) {}

  void arm(const Fault& fault) {
    fault_ = fault;
    calls_ = 0;
  }
  /// Calls since arm().
  int64_t calls() const { return calls_; }
  /// Whether the fault has struck.
  bool struck() const { return fault_.kind != Fault::none && calls_ > fault_.call; }

  int open(const std::string& path, int flags, mode_t mode) override {
    return fails((flags & O_CREAT) != 0) ? -1 : below_.open(path, flags, mode);
  }
  // Closed in any case: descriptors are not what is tested, and the dead hold none.
  int close(int file) override {
    const int result = below_.close(file);
    return fails(false) ? -1 : result;
  }
  ssize_t pread(int file, void* to, size_t bytes, off_t offset) override {
    return fails(false) ? -1 : below_.pread(file, to, bytes, offset);
  }
  ssize_t write(int file, const void* from, size_t bytes) override {
    const bool now = fault_.kind == Fault::short_write && calls_ == fault_.call;
    if (fails(true)) return -1;
    return below_.write(file, from, now ? (bytes + 1) / 2 : bytes);
  }
  int truncate(int file, off_t bytes) override { return fails(true) ? -1 : below_.truncate(file, bytes); }
  int fsync(int file) override { return fails(true) ? -1 : below_.fsync(file); }
  int fstat(int file, struct stat& info) override { return fails(false) ? -1 : below_.fstat(file, info); }
  int lock(int file) override { return fails(false) ? -1 : below_.lock(file); }
  int stat(const std::string& path, struct stat& info) override {
    return fails(false) ? -1 : below_.stat(path, info);
  }
  int lstat(const std::string& path, struct stat& info) override {
    return fails(false) ? -1 : below_.lstat(path, info);
  }
  int rename(const std::string& from, const std::string& to) override {
    return fails(true) ? -1 : below_.rename(from, to);
  }
  int unlink(const std::string& path) override { return fails(false) ? -1 : below_.unlink(path); }
  int mkdir(const std::string& path, mode_t mode) override {
    return fails(true) ? -1 : below_.mkdir(path, mode);
  }
  int rmdir(const std::string& path) override { return fails(false) ? -1 : below_.rmdir(path); }
  int list(const std::string& path, std::vector<std::string>& names) override {
    return fails(false) ? -1 : below_.list(path, names);
  }

 private:
  /// Counts a call; true, with errno, when it is to fail.
  bool fails(bool needs_space) {
    const int64_t call = calls_++;
    const bool strikes = (fault_.kind == Fault::io_error && call == fault_.call) ||
                         (fault_.kind == Fault::death && call >= fault_.call);
    if (strikes) errno = EIO;
    const bool is_full = fault_.kind == Fault::full && call >= fault_.call && needs_space;
    if (is_full) errno = ENOSPC;
    return strikes || is_full;
  }

  FileSystem& below_;
  Fault fault_;
  std::atomic<int64_t> calls_{0};
};

}  // namespace moesaic
