#include "device/cuda/pause.h"

namespace moesaic {
namespace {

__global__ void spin(uint64_t nanoseconds) {
  uint64_t start = 0, now = 0;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
  do {
    __nanosleep(1000);
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  } while (now - start < nanoseconds);
}

}  // namespace

void pause(cudaStream_t stream, uint64_t nanoseconds) {
  spin<<<1, 1, 0, stream>>>(nanoseconds);
}

}  // namespace moesaic
