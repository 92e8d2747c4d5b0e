#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/error.h"

namespace moesaic {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBufferBytes = size_t{1} << 20;

[[noreturn]] void fail_system(std::string_view operation, const std::string& path, std::error_code code) {
  const std::string_view advice =
      code == std::errc::no_space_on_device ? "; free some space there or choose another folder" : "";
  fail<IoError>("cannot {} {}: {}{}", operation, path, code.message(), advice);
}

[[noreturn]] void fail_errno(std::string_view operation, const std::string& path) {
  fail_system(operation, path, std::error_code(errno, std::generic_category()));
}

class Descriptor {
 public:
  Descriptor(const std::string& path, int flags, std::string_view operation)
      : file_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {
    if (file_ < 0) fail_errno(operation, path);
  }
  ~Descriptor() { ::close(file_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return file_; }

 private:
  int file_;
};

int64_t regular_size(const struct stat& info, const std::string& path) {
  require<IoError>(S_ISREG(info.st_mode), "cannot read {}: it is not a regular file", path);
  return info.st_size;
}

std::string folder_of(const std::string& path) {
  const std::string parent = fs::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

}  // namespace

MappedFile::MappedFile(std::string path) : path_(std::move(path)) {
  const Descriptor file(path_, O_RDONLY, "open");
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) fail_errno("inspect", path_);
  const auto size = static_cast<size_t>(regular_size(info, path_));
  if (size == 0) return;
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.get(), 0);
  if (data == MAP_FAILED) fail_errno("map", path_);
  bytes_ = {static_cast<const std::byte*>(data), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

std::span<const std::byte> MappedFile::range(int64_t offset, int64_t count, std::string_view what) const {
  require<IoError>(offset >= 0 && count >= 0 && offset <= size() && count <= size() - offset,
                   "{}: {} needs {} bytes at {}, but the file has {} bytes: it is cut short or damaged",
                   path_, what, count, offset, size());
  return bytes_.subspan(static_cast<size_t>(offset), static_cast<size_t>(count));
}

std::string read_file(const std::string& path, int64_t max_bytes) {
  const Descriptor file(path, O_RDONLY, "open");
  std::string text;
  std::vector<char> buffer(size_t{1} << 16);
  for (;;) {
    const ssize_t got = ::read(file.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_errno("read", path);
    if (got == 0) return text;
    require<IoError>(static_cast<int64_t>(text.size()) + got <= max_bytes,
                     "cannot read {}: it holds more than the {} bytes allowed for such a file", path,
                     max_bytes);
    text.append(buffer.data(), static_cast<size_t>(got));
  }
}

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)), temporary_(path_ + ".tmp") {
  buffer_.reserve(kBufferBytes);
  file_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file_ < 0) fail_errno("create", temporary_);
}

AtomicFile::~AtomicFile() {
  if (file_ < 0) return;
  ::close(file_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  MOESAIC_CHECK(file_ >= 0, "{} is committed already", path_);
  if (buffer_.size() + bytes.size() > kBufferBytes) flush();
  if (bytes.size() > kBufferBytes) {
    write_out(bytes);
  } else {
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  }
  size_ += static_cast<int64_t>(bytes.size());
}

void AtomicFile::flush() {
  write_out(buffer_);
  buffer_.clear();
}

void AtomicFile::write_out(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t done = ::write(file_, bytes.data(), bytes.size());
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) fail_errno("write", path_);
    bytes = bytes.subspan(static_cast<size_t>(done));
  }
}

void AtomicFile::commit() {
  MOESAIC_CHECK(file_ >= 0, "{} is committed already", path_);
  flush();
  if (::fsync(file_) != 0) fail_errno("bring to the disk", path_);
  publish();
  sync_folder(folder_of(path_));
}

void AtomicFile::commit_unsynced() {
  MOESAIC_CHECK(file_ >= 0, "{} is committed already", path_);
  flush();
  publish();
}

void AtomicFile::publish() {
  // Network file systems may report a full disk only here.
  if (::close(std::exchange(file_, -1)) != 0) {
    const int error = errno;
    ::unlink(temporary_.c_str());
    fail_system("close", path_, std::error_code(error, std::generic_category()));
  }
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary_.c_str());
    fail_system("rename to", path_, std::error_code(error, std::generic_category()));
  }
}

void make_folders(const std::string& path) {
  std::error_code code;
  fs::create_directories(path, code);
  if (!code && !fs::is_directory(path, code) && !code)
    code = std::make_error_code(std::errc::not_a_directory);
  if (code) fail_system("create the folder", path, code);
}

void sync_folder(const std::string& path) {
  const Descriptor folder(path, O_RDONLY | O_DIRECTORY, "open the folder");
  // Some file systems cannot sync a folder and say EINVAL: they offer nothing better.
  if (::fsync(folder.get()) != 0 && errno != EINVAL) fail_errno("bring to the disk the folder", path);
}

void rename_path(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) fail_errno(fmt::format("rename {} to", from), to);
  sync_folder(folder_of(to));
}

void remove_tree(const std::string& path) {
  std::error_code code;
  fs::remove_all(path, code);
  if (code) fail_system("remove", path, code);
}

std::vector<std::string> list_folder(const std::string& path) {
  std::error_code code;
  std::vector<std::string> names;
  fs::directory_iterator at(path, code);
  for (; !code && at != fs::directory_iterator(); at.increment(code))
    names.push_back(at->path().filename().string());
  if (code) fail_system("list the folder", path, code);
  std::sort(names.begin(), names.end());
  return names;
}

bool path_exists(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0;
}

int64_t file_size(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) fail_errno("inspect", path);
  return regular_size(info, path);
}

}  // namespace moesaic
