#pragma once
// The one way to files: everything that reads or writes one goes through here, so that every failure is an
// IoError that names the path, the operation and the system's reason, and every file written is either whole
// or not there. The system calls themselves are in file_system.h.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moesaic {

class FileSystem;

/// A regular file opened for reading at any place. Threads may share it. Files are not mapped: a disk that fails, or a file that
/// others shorten, gives an IoError and not a signal.
class InputFile {
 public:
  /// Throws IoError if the file is missing or not a regular file.
  explicit InputFile(std::string path);
  ~InputFile();
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&&) = delete;

  const std::string& path() const { return path_; }
  /// When it was opened.
  int64_t size() const { return size_; }
  /// Fills `to` from `offset`; IoError naming `what` unless all of it lies inside the file (any offset is safe).
  void read(int64_t offset, std::span<std::byte> to, std::string_view what) const;

 private:
  FileSystem& files_;
  std::string path_;
  int file_ = -1;
  int64_t size_ = 0;
};

/// The whole file as text; IoError if it holds more than max_bytes.
std::string read_file(const std::string& path, int64_t max_bytes);

/// How bytes reach the disk. `page_cache`: as usual. `direct`: around the system's cache, for files that are large and not
/// read again soon: no second copy in memory, less processor time, nothing else pushed out of the cache; where
/// the file system has no such way, as usual.
enum class Caching { page_cache, direct };

/// A file that appears under its name only when complete: bytes go to "<path>.tmp" in the same folder;
/// commit() brings them to the disk, renames, and brings the folder to the disk. Without commit() the
/// temporary file is removed. One writer per path at a time.
class AtomicFile {
 public:
  /// Creates "<path>.tmp", replacing what a crash left there.
  explicit AtomicFile(std::string path, Caching caching = Caching::page_cache);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Appends; small writes are collected into large ones.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  /// Bytes appended so far.
  int64_t size() const { return size_; }
  /// Publishes the file, replacing an older one of that name. Nothing may be written afterwards.
  void commit();
  /// As commit(), but whole only to other processes: a crash of the machine may leave the file empty. For files
  /// that are written often and soon out of date.
  void commit_unsynced();

 private:
  void write_out(std::span<const std::byte> bytes);
  void flush();
  void finish();
  void leave_direct();
  void remove_temporary();
  void publish();

  // Around the page cache, what is written at once begins and ends at multiples of the disk's blocks, in memory too.
  static constexpr size_t kBufferAlignment = 4 << 10;
  struct Free {
    void operator()(std::byte* bytes) const {
      ::operator delete[](bytes, std::align_val_t{kBufferAlignment});
    }
  };

  FileSystem& files_;
  std::string path_, temporary_;
  size_t capacity_, filled_ = 0;
  std::unique_ptr<std::byte[], Free> buffer_;
  int64_t size_ = 0;
  int file_ = -1;
  bool direct_ = false;
};

/// Creates the folder and its parents, and brings what it created to the disk; one that exists is fine.
void make_folders(const std::string& path);
/// Brings the folder's entries (names, renames, removals) to the disk.
void sync_folder(const std::string& path);
/// Renames a file or folder within one folder, and brings the change to the disk.
void rename_path(const std::string& from, const std::string& to);
/// Removes a file, or a folder and all it holds; one that is not there is fine. Links are removed, not followed.
void remove_tree(const std::string& path);
/// Names in a folder, sorted, without "." and "..".
std::vector<std::string> list_folder(const std::string& path);
/// True for anything of that name, false when there is none; IoError when that cannot be told.
bool path_exists(const std::string& path);
/// Bytes of a regular file.
int64_t file_size(const std::string& path);

}  // namespace moesaic
