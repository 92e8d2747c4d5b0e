#pragma once
// Memory by name and purpose. Everything a rank holds on its device is taken from an arena before step 0, so
// the arena's list of allocations is the memory table, and its high-water mark is the table's sum to the
// byte.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace moesaic {

/// What memory is for, as the rows of the memory table.
enum class Purpose : uint8_t { parameters, gradients, optimizer, activations, workspace, batch, buffers };
std::string name_of(Purpose purpose);

/// Gives and takes raw device memory. One per device kind.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  /// `bytes` > 0, aligned to 256 bytes, zeroed. Throws DeviceError when there is not enough.
  virtual std::byte* take(int64_t bytes) = 0;
  virtual void give(std::byte* memory, int64_t bytes) = 0;
};

class Arena {
 public:
  struct Allocation {
    Purpose purpose;
    std::string name;
    int64_t bytes;  // rounded up to 256
    std::byte* memory;
  };

  /// `source` must outlive the arena.
  explicit Arena(MemorySource& source) : source_(source) {}
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// Memory that lives as long as the arena, or until release(purpose). Zero bytes give a valid, unused
  /// pointer.
  std::byte* allocate(Purpose purpose, std::string name, int64_t bytes);
  template <class T>
  T* allocate_array(Purpose purpose, std::string name, int64_t count) {
    return reinterpret_cast<T*>(allocate(purpose, std::move(name), count * static_cast<int64_t>(sizeof(T))));
  }
  /// Gives back everything of one purpose (activations and workspace, when the rows bound grows).
  void release(Purpose purpose);

  const std::vector<Allocation>& allocations() const { return allocations_; }
  int64_t bytes() const { return bytes_; }
  int64_t bytes(Purpose purpose) const;
  int64_t high_water() const { return high_water_; }

 private:
  MemorySource& source_;
  std::vector<Allocation> allocations_;
  int64_t bytes_ = 0, high_water_ = 0;
};

}  // namespace moesaic
