#include "base/philox.h"
#include "ops/cuda_op.cuh"
#include "ops/initialize/initialize_bodies.h"

namespace moesaic::ops {
namespace {

constexpr int kThreads = 256;

/// As random_normal in base/rng.cpp.
__device__ float normal(uint64_t seed, uint64_t stream, uint64_t index) {
  const PhiloxBlock c = philox(seed, stream, index);
  const double u = (c.words[0] + 0.5) * 0x1p-32, v = c.words[1] * 0x1p-32;
  return static_cast<float>(sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v));
}

template <class T>
__global__ void __launch_bounds__(kThreads) kernel(int64_t count, T* y, uint16_t* remainder, uint64_t seed,
                                                   uint64_t stream, int64_t first, float mean, float std) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count; i += stride) {
    const float value = std == 0 ? mean : mean + std * normal(seed, stream, static_cast<uint64_t>(first + i));
    if (remainder == nullptr) {
      y[i] = from_float<T>(value);
    } else {
      const uint32_t bits = __float_as_uint(value);
      reinterpret_cast<uint16_t*>(y)[i] = static_cast<uint16_t>((bits + 0x8000u) >> 16);
      remainder[i] = static_cast<uint16_t>(bits);
    }
  }
}

}  // namespace

void initialize_cuda(const OpContext& c, const Initialize& args) {
  const int64_t count = c.shape(args.y).numel();
  with_float(c.dtype(args.y), [&](auto zero) {
    kernel<<<num_blocks(ceil_div(count, kThreads)), kThreads, 0, cuda_stream(c)>>>(
        count, cuda_pointer(c.out<decltype(zero)>(args.y)), out_or_null<uint16_t>(c, args.remainder),
        args.seed, args.stream, args.first, args.mean, args.std);
  });
}

}  // namespace moesaic::ops
