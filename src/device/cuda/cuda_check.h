#pragma once
// CUDA calls that must succeed. An error becomes a DeviceError that names the call and the driver's words.
#include <cuda_runtime_api.h>

#include <string_view>

#include "base/error.h"

namespace moesaic {

/// Throws DeviceError unless `result` is success. `what`: what was tried, as in "allocating 3 GiB".
inline void cuda_check(cudaError_t result, std::string_view what) {
  if (result == cudaSuccess) return;
  cudaGetLastError();  // an error that is reported here must not be found again at the next launch
  fail<DeviceError>("{} failed: {} ({})", what, cudaGetErrorString(result), cudaGetErrorName(result));
}

}  // namespace moesaic
