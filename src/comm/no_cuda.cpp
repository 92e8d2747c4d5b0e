// Moving data between GPUs in a build without CUDA: no rank there has a GPU (device/no_cuda.cpp).
#include "base/error.h"
#include "comm/threads/mover.h"

namespace moesaic {

std::unique_ptr<Mover> make_cuda_mover() {
  fail<ConfigError>("this build has no CUDA; build with cmake --preset cuda, or set run.device = cpu");
}

}  // namespace moesaic
