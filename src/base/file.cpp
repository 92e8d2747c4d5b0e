#include "base/file.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/file_system.h"

namespace moesaic {
namespace {

constexpr size_t kBufferBytes = 256 << 10;
constexpr size_t kDirectBytes = 1 << 20;  // more at once, as the writer waits for the disk each time

class Descriptor {
 public:
  Descriptor(const std::string& path, int flags, std::string_view operation)
      : files_(file_system()), file_(files_.open(path, flags)) {
    if (file_ < 0) fail_errno(operation, path);
  }
  ~Descriptor() { files_.close(file_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  FileSystem& files() const { return files_; }
  int get() const { return file_; }

 private:
  FileSystem& files_;
  int file_;
};

int64_t regular_size(const struct stat& info, const std::string& path) {
  require<IoError>(S_ISREG(info.st_mode), "cannot read {}: it is not a regular file", path);
  return info.st_size;
}

int64_t regular_size(FileSystem& files, int file, const std::string& path) {
  struct stat info {};
  if (files.fstat(file, info) != 0) fail_errno("inspect", path);
  return regular_size(info, path);
}

/// Reads up to `bytes` at `offset`; 0 at the end of the file.
size_t read_some(FileSystem& files, int file, std::byte* to, size_t bytes, int64_t offset,
                 const std::string& path) {
  for (;;) {
    const ssize_t got = files.pread(file, to, bytes, offset);
    if (got >= 0) return static_cast<size_t>(got);
    if (errno != EINTR) fail_errno("read", path);
  }
}

[[noreturn]] void fail_outside(const std::string& path, std::string_view what, int64_t offset, int64_t count,
                               int64_t size) {
  fail<IoError>("{}: {} needs {} bytes at {}, but the file has {} bytes: it is cut short or damaged", path,
                what, count, offset, size);
}

std::string folder_of(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

}  // namespace

InputFile::InputFile(std::string path) : files_(file_system()), path_(std::move(path)) {
  file_ = files_.open(path_, O_RDONLY);
  if (file_ < 0) fail_errno("open", path_);
  try {
    size_ = regular_size(files_, file_, path_);
  } catch (...) {
    files_.close(file_);
    throw;
  }
}

InputFile::~InputFile() {
  if (file_ >= 0) files_.close(file_);
}

InputFile::InputFile(InputFile&& other) noexcept
    : files_(other.files_),
      path_(std::move(other.path_)),
      file_(std::exchange(other.file_, -1)),
      size_(other.size_) {}

void InputFile::read(int64_t offset, std::span<std::byte> to, std::string_view what) const {
  const auto count = static_cast<int64_t>(to.size());
  if (offset < 0 || offset > size_ || count > size_ - offset) fail_outside(path_, what, offset, count, size_);
  for (size_t done = 0; done < to.size();) {
    const int64_t at = offset + static_cast<int64_t>(done);
    const size_t got = read_some(files_, file_, to.data() + done, to.size() - done, at, path_);
    require<IoError>(got > 0,
                     "{}: {} needs {} bytes at {}, but the file, which had {} bytes, was cut while in use",
                     path_, what, count, offset, size_);
    done += got;
  }
}

std::string read_file(const std::string& path, int64_t max_bytes) {
  const Descriptor file(path, O_RDONLY, "open");
  std::string text;
  std::vector<std::byte> buffer(size_t{1} << 16);
  for (;;) {
    const size_t got = read_some(file.files(), file.get(), buffer.data(), buffer.size(),
                                 static_cast<int64_t>(text.size()), path);
    if (got == 0) return text;
    require<IoError>(static_cast<int64_t>(text.size() + got) <= max_bytes,
                     "cannot read {}: it holds more than the {} bytes allowed for such a file", path,
                     max_bytes);
    text.append(reinterpret_cast<const char*>(buffer.data()), got);
  }
}

AtomicFile::AtomicFile(std::string path, Caching caching)
    : files_(file_system()),
      path_(std::move(path)),
      temporary_(path_ + ".tmp"),
      capacity_(caching == Caching::direct ? kDirectBytes : kBufferBytes),
      buffer_(new (std::align_val_t{kBufferAlignment}) std::byte[capacity_]) {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC;
  if (caching == Caching::direct) {
    file_ = files_.open(temporary_, kFlags | O_DIRECT, 0666);
    direct_ = file_ >= 0;
  }
  // A file system without such a way says EINVAL.
  if (caching == Caching::page_cache || (file_ < 0 && errno == EINVAL))
    file_ = files_.open(temporary_, kFlags, 0666);
  if (file_ < 0) fail_errno("create", temporary_);
}

AtomicFile::~AtomicFile() {
  if (file_ < 0) return;
  files_.close(file_);
  remove_temporary();
}

void AtomicFile::remove_temporary() {
  files_.unlink(temporary_);
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  MOESAIC_CHECK(file_ >= 0, "{} is committed already", path_);
  size_ += static_cast<int64_t>(bytes.size());
  while (!bytes.empty()) {
    if (!direct_ && filled_ == 0 && bytes.size() >= capacity_) return write_out(bytes);
    const auto part = bytes.first(std::min(bytes.size(), capacity_ - filled_));
    std::ranges::copy(part, buffer_.get() + filled_);
    filled_ += part.size();
    if (filled_ == capacity_) flush();
    bytes = bytes.subspan(part.size());
  }
}

void AtomicFile::flush() {
  write_out(std::span(buffer_.get(), std::exchange(filled_, 0)));
}

void AtomicFile::write_out(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t done = files_.write(file_, bytes.data(), bytes.size());
    if (done < 0 && errno == EINTR) continue;
    if (done < 0 && errno == EINVAL && direct_) {
      leave_direct();
      continue;
    }
    if (done < 0) fail_errno("write", path_);
    bytes = bytes.subspan(static_cast<size_t>(done));
  }
}

// The disk's blocks are larger than what was moved, or a write that fell short left a place between two of them.
void AtomicFile::leave_direct() {
  direct_ = false;
  files_.close(std::exchange(file_, -1));
  file_ = files_.open(temporary_, O_WRONLY | O_APPEND);
  if (file_ >= 0) return;
  const std::error_code code(errno, std::generic_category());
  remove_temporary();
  fail_system("open again", temporary_, code);
}

void AtomicFile::finish() {
  const auto padded =
      direct_ ? static_cast<size_t>(round_up(static_cast<int64_t>(filled_), kBufferAlignment)) : filled_;
  if (padded == filled_) return flush();
  std::fill(buffer_.get() + filled_, buffer_.get() + padded, std::byte{0});
  filled_ = padded;
  flush();
  if (files_.truncate(file_, static_cast<off_t>(size_)) != 0) fail_errno("cut to its size", path_);
}

void AtomicFile::commit() {
  MOESAIC_CHECK(file_ >= 0, "{} is committed already", path_);
  finish();
  if (files_.fsync(file_) != 0) fail_errno("bring to the disk", path_);
  publish();
  sync_folder(folder_of(path_));
}

void AtomicFile::commit_unsynced() {
  MOESAIC_CHECK(file_ >= 0, "{} is committed already", path_);
  finish();
  publish();
}

void AtomicFile::publish() {
  // Network file systems may report a full disk only here.
  if (files_.close(std::exchange(file_, -1)) != 0) {
    const std::error_code code(errno, std::generic_category());
    remove_temporary();
    fail_system("close", path_, code);
  }
  if (files_.rename(temporary_, path_) != 0) {
    const std::error_code code(errno, std::generic_category());
    remove_temporary();
    fail_system("rename to", path_, code);
  }
}

void make_folders(const std::string& path) {
  FileSystem& files = file_system();
  std::vector<std::string> missing;  // the deepest first
  for (std::string at = path;;) {
    struct stat info {};
    if (files.stat(at, info) == 0) {
      if (!S_ISDIR(info.st_mode))
        fail_system("create the folder", path, std::make_error_code(std::errc::not_a_directory));
      break;
    }
    if (errno != ENOENT) fail_errno("create the folder", path);
    const std::string parent = folder_of(at);
    if (!at.ends_with('/')) missing.push_back(at);  // "a/b/" is "a/b", which comes next
    if (parent == at) break;
    at = parent;
  }
  for (auto at = missing.rbegin(); at != missing.rend(); ++at) {
    // Another rank may create it at the same time.
    if (files.mkdir(*at, 0777) != 0 && errno != EEXIST) fail_errno("create the folder", *at);
    sync_folder(folder_of(*at));
  }
}

void sync_folder(const std::string& path) {
  FileSystem& files = file_system();
  const int folder = files.open(path, O_RDONLY | O_DIRECTORY);
  // A folder that may be written but not read cannot be synced, nor can those of some file systems, which say EINVAL: there
  // is nothing better.
  if (folder < 0 && errno == EACCES) return;
  if (folder < 0) fail_errno("open the folder", path);
  const int error = files.fsync(folder) == 0 ? 0 : errno;
  files.close(folder);
  if (error != 0 && error != EINVAL)
    fail_system("bring to the disk the folder", path, std::error_code(error, std::generic_category()));
}

void rename_path(const std::string& from, const std::string& to) {
  if (file_system().rename(from, to) != 0) fail_errno(fmt::format("rename {} to", from), to);
  sync_folder(folder_of(to));
}

void remove_tree(const std::string& path) {
  struct Entry {
    std::string path;
    bool emptied = false;
  };
  FileSystem& files = file_system();
  for (std::vector<Entry> left{{path}}; !left.empty();) {
    const Entry entry = left.back();
    // Always tried first: nothing behind a link may be removed.
    if (files.unlink(entry.path) == 0 || errno == ENOENT) {
      left.pop_back();
      continue;
    }
    if (errno != EISDIR) fail_errno("remove", entry.path);
    if (files.rmdir(entry.path) == 0 || errno == ENOENT) {
      left.pop_back();
      continue;
    }
    if (entry.emptied || (errno != ENOTEMPTY && errno != EEXIST)) fail_errno("remove", entry.path);
    left.back().emptied = true;
    for (const std::string& name : list_folder(entry.path)) left.push_back({entry.path + "/" + name});
  }
}

std::vector<std::string> list_folder(const std::string& path) {
  std::vector<std::string> names;
  if (file_system().list(path, names) != 0) fail_errno("list the folder", path);
  std::sort(names.begin(), names.end());
  return names;
}

bool path_exists(const std::string& path) {
  struct stat info {};
  if (file_system().lstat(path, info) == 0) return true;
  if (errno != ENOENT && errno != ENOTDIR) fail_errno("inspect", path);
  return false;
}

int64_t file_size(const std::string& path) {
  struct stat info {};
  if (file_system().stat(path, info) != 0) fail_errno("inspect", path);
  return regular_size(info, path);
}

}  // namespace moesaic
