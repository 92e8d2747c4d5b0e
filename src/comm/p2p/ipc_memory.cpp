#include "comm/p2p/ipc_memory.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstring>

#include "device/cuda/cuda_check.h"

namespace moesaic {
namespace {

static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(Address::handle));

struct Range {
  const std::byte* base;
  int64_t bytes;
};

/// The allocation that holds `memory`. Only the driver knows; the runtime says where its function is, so nothing links it.
Range allocation_of(const void* memory) {
  using Ask = CUresult (*)(CUdeviceptr*, size_t*, CUdeviceptr);
  static const Ask ask = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
    cuda_check(
        cudaGetDriverEntryPointByVersion("cuMemGetAddressRange", &function, 12000, cudaEnableDefault, &found),
        "finding cuMemGetAddressRange");
    require<DeviceError>(function != nullptr, "the GPU's driver has no cuMemGetAddressRange; it is too old");
    return reinterpret_cast<Ask>(function);
  }();
  CUdeviceptr base = 0;
  size_t bytes = 0;
  require<DeviceError>(ask(&base, &bytes, reinterpret_cast<CUdeviceptr>(memory)) == CUDA_SUCCESS,
                       "a buffer of a collective is not in GPU memory");
  return {reinterpret_cast<const std::byte*>(base), static_cast<int64_t>(bytes)};
}

}  // namespace

Address IpcMemory::publish(const void* memory) {
  if (memory == nullptr) return {};
  const auto* at = static_cast<const std::byte*>(memory);
  auto found = own_.upper_bound(at);
  if (found == own_.begin() || at >= (--found)->first + found->second.bytes) {
    const Range range = allocation_of(memory);
    cudaIpcMemHandle_t handle;
    cuda_check(cudaIpcGetMemHandle(&handle, const_cast<std::byte*>(range.base)),
               "sharing GPU memory with other processes");
    Own own{range.bytes, {}};
    std::memcpy(own.handle.data(), &handle, sizeof handle);
    found = own_.insert_or_assign(range.base, own).first;
  }
  return {found->first, at - found->first, found->second.handle};
}

const std::byte* IpcMemory::reach(int64_t rank, const Address& address) {
  if (address.base == nullptr) return nullptr;
  std::byte*& opened = opened_[{rank, address.handle}];
  if (opened == nullptr) {
    cudaIpcMemHandle_t handle;
    std::memcpy(&handle, address.handle.data(), sizeof handle);
    void* memory = nullptr;
    cuda_check(cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess),
               fmt::format("opening GPU memory of rank {}", rank));
    opened = static_cast<std::byte*>(memory);
  }
  return opened + address.offset;
}

void IpcMemory::forget() {
  for (const auto& [key, memory] : opened_)
    if (memory != nullptr) cudaIpcCloseMemHandle(memory);
  opened_.clear();
  own_.clear();
}

}  // namespace moesaic
