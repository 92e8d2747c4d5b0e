#pragma once
// Branch-free exp and what is made of it, and sums in a fixed order, for loops over floats on the CPU: libm's calls and
// a single running sum keep a loop from being vectorised, these inline functions do not.
#include <bit>
#include <cstdint>

namespace moesaic::ops {

/// e^x with a relative error below 1e-7. Exactly 0 below -86.9 (where e^x nears the smallest normal number), infinite
/// above 88.72283; NaN stays NaN. Polynomial: Cephes expf (Moshier); argument reduction in two steps (Cody and Waite).
inline float fast_exp(float x) {
  constexpr float kRound = 12582912;  // 1.5 * 2^23: adding it leaves a whole number in the low bits
  const float shifted = x * 1.44269504f + kRound;
  const float k = shifted - kRound;
  const float r = (x - k * 0.693359375f) - k * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1;
  // 2 p 2^(k-1): k reaches 128, which no exponent field holds.
  const uint32_t exponent = std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(kRound) + 126;
  const float y = (p + p) * std::bit_cast<float>(exponent << 23);
  const float high = x > 88.72283f ? std::bit_cast<float>(0x7f800000u) : y;
  return x < -86.9f ? 0.0f : high;
}

/// 1 / (1 + e^-x).
inline float fast_sigmoid(float x) {
  return 1 / (1 + fast_exp(-x));
}

/// x sigmoid(x).
inline float fast_silu(float x) {
  return x * fast_sigmoid(x);
}

/// f(0) + ... + f(count - 1), as 16 running sums that are added pairwise at the end.
template <class F>
inline float lane_sum(int64_t count, const F& f) {
  constexpr int kLanes = 16;
  float lanes[kLanes] = {};
  const int64_t whole = count / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes)
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += f(i + lane);
  for (int64_t i = whole; i < count; ++i) lanes[i - whole] += f(i);
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  return lanes[0];
}

}  // namespace moesaic::ops
