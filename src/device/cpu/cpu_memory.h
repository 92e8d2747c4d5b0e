#pragma once
// Host memory for a CPU rank.
#include "device/arena.h"

namespace moesaic {

/// Pages from the system (zeroed, returned at once when given back).
class CpuMemory : public MemorySource {
 public:
  std::byte* take(int64_t bytes) override;
  void give(std::byte* memory, int64_t bytes) override;
};

}  // namespace moesaic
