#pragma once
// RMSNorm of one row in FP32, for the CPU bodies of rmsnorm and qk_rope.
#include <cmath>

#include "ops/vector_math.h"

namespace moesaic::ops {

/// 1 / sqrt(mean of squares + eps).
inline float inverse_rms(const float* s, int64_t width, float eps) {
  const float squares = lane_sum(width, [&](int64_t i) { return s[i] * s[i]; });
  return 1 / std::sqrt(squares / static_cast<float>(width) + eps);
}

/// The gradient of row s through s * rstd * gain is rstd * dy * gain - s * norm_pull(...).
inline float norm_pull(const float* s, const float* dy, const float* gain, int64_t width, float rstd) {
  const float dot = lane_sum(width, [&](int64_t i) { return dy[i] * gain[i] * s[i]; });
  return rstd * rstd * rstd * dot / static_cast<float>(width);
}

}  // namespace moesaic::ops
