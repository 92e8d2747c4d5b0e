#pragma once
// A lock between processes, by a file: flock(), which Linux carries over NFS as well. It ends with the process that holds it,
// however that dies, so a dead owner's lock blocks nobody (on NFS: once the server has noticed, normally within 90 s).
#include <string>

namespace moesaic {

class FileSystem;

class FileLock {
 public:
  /// Takes the lock at once and writes `owner` into the file, which stays there, empty, when the lock is released. Throws
  /// IoError when another holds it, also in this process, and names what that one wrote. Where the file system cannot lock, a
  /// warning is all.
  FileLock(std::string path, const std::string& owner);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  FileSystem& files_;
  std::string path_;
  int file_ = -1;
};

/// "host gpu07, process 4711": what this process calls itself in a lock.
std::string this_process();

}  // namespace moesaic
