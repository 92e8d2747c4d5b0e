#pragma once
// Device memory of one GPU.
#include "device/arena.h"

namespace moesaic {

/// Plain allocations of the current device, so that other GPUs of the process reach them by their pointers.
class CudaMemory : public MemorySource {
 public:
  std::byte* take(int64_t bytes) override;
  void give(std::byte* memory, int64_t bytes) override;
};

}  // namespace moesaic
