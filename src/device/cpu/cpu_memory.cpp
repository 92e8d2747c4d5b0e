#include "device/cpu/cpu_memory.h"

#include <sys/mman.h>

#include "base/error.h"
#include "base/units.h"

namespace moesaic {

std::byte* CpuMemory::take(int64_t bytes) {
  // With its pages: a step takes no more memory than the table says, and what is too large is found out at the start.
  void* memory = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  require<DeviceError>(memory != MAP_FAILED,
                       "{} of memory could not be had; use more ranks or a smaller batch",
                       format_bytes(bytes));
  return static_cast<std::byte*>(memory);
}

void CpuMemory::give(std::byte* memory, int64_t bytes) {
  munmap(memory, static_cast<size_t>(bytes));
}

}  // namespace moesaic
