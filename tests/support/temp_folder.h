#pragma once
// A folder of its own for one test, removed with all it holds at the end. In memory where there is such a place: tests
// that damage a file thousands of times would otherwise wait for the disk.
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

namespace moesaic {

class TempFolder {
 public:
  TempFolder() {
    const std::filesystem::path memory = "/dev/shm";
    std::error_code ignored;
    const bool in_memory = std::filesystem::is_directory(memory, ignored);
    path_ = ((in_memory ? memory : std::filesystem::temp_directory_path()) / "moesaic_test_XXXXXX").string();
    if (::mkdtemp(path_.data()) == nullptr) throw std::runtime_error("no temporary folder");
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline std::string slurp(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void spit(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

}  // namespace moesaic
