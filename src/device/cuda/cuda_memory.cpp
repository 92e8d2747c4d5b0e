#include "device/cuda/cuda_memory.h"

#include "base/units.h"
#include "device/cuda/cuda_check.h"
#include "device/cuda_memory_info.h"

namespace moesaic {

std::byte* CudaMemory::take(int64_t bytes) {
  void* memory = nullptr;
  const cudaError_t result = cudaMalloc(&memory, static_cast<size_t>(bytes));
  if (result == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    size_t free = 0, total = 0;
    cuda_check(cudaMemGetInfo(&free, &total), "asking for the free memory");
    fail<DeviceError>(
        "{} of GPU memory could not be had: {} of {} are free; use more GPUs, a smaller micro-batch or "
        "layout.rebuild = selective",
        format_bytes(bytes), format_bytes(static_cast<int64_t>(free)),
        format_bytes(static_cast<int64_t>(total)));
  }
  cuda_check(result, "allocating GPU memory");
  // A memset returns before it has run, and the streams of a device do not wait for the stream that it runs on.
  cuda_check(cudaMemset(memory, 0, static_cast<size_t>(bytes)), "zeroing GPU memory");
  cuda_check(cudaStreamSynchronize(cudaStreamLegacy), "zeroing GPU memory");
  return static_cast<std::byte*>(memory);
}

void CudaMemory::give(std::byte* memory, int64_t) {
  cudaFree(memory);
}

int64_t gpu_memory_in_use() {
  size_t free = 0, total = 0;
  cuda_check(cudaMemGetInfo(&free, &total), "asking for free memory");
  return static_cast<int64_t>(total - free);
}

}  // namespace moesaic
