#pragma once
// GPU memory of this process told to others, and theirs opened here: CUDA's interprocess handles, one per allocation.
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "comm/meeting/mover.h"

namespace moesaic {

class IpcMemory {
 public:
  IpcMemory() = default;
  ~IpcMemory() { forget(); }
  IpcMemory(const IpcMemory&) = delete;
  IpcMemory& operator=(const IpcMemory&) = delete;

  /// Of memory that cudaMalloc gave (anywhere inside), or null. Throws DeviceError.
  Address publish(const void* memory);
  /// Memory that global rank `rank` has published. Throws DeviceError when it cannot be opened.
  const std::byte* reach(int64_t rank, const Address& address);
  /// Closes what was opened. What this process has published must not be reached any more.
  void forget();

 private:
  using Handle = std::array<std::byte, 64>;
  struct Own {
    int64_t bytes;
    Handle handle;
  };
  std::map<const std::byte*, Own> own_;  // by the allocation's first byte
  std::map<std::pair<int64_t, Handle>, std::byte*> opened_;
};

}  // namespace moesaic
