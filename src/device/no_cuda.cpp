// The CUDA device of a build without CUDA.
#include "base/error.h"
#include "device/cuda_memory_info.h"
#include "device/device.h"

namespace moesaic {

int num_cuda_devices() {
  return 0;
}
std::string names_of_cuda_devices() {
  return "";
}
std::unique_ptr<Device> make_cuda_device(const CudaOptions&) {
  fail<ConfigError>(
      "run.device = cuda, but this build has no CUDA; build with cmake --preset cuda, or set run.device = "
      "cpu");
}

int64_t gpu_memory_in_use() {
  return 0;
}

}  // namespace moesaic
