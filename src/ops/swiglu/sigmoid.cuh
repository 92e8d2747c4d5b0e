#pragma once
// The sigmoid as both directions of SwiGLU compute it.
namespace moesaic::ops {

/// 1 / (1 + e^-x) by the special-function unit: relative error below 2e-6 where the result is above 1e-10; 0 and 1 at the ends.
__device__ inline float sigmoid(float x) {
  return __fdividef(1.0f, 1.0f + __expf(-x));
}

}  // namespace moesaic::ops
