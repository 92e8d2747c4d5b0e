#pragma once
// What the tests of ops compare with: double precision, central differences, values that BF16 holds exactly.
#include <cstdint>
#include <utility>
#include <vector>

#include "base/dtype.h"

namespace moesaic::test {

using Doubles = std::vector<double>;

inline Doubles doubles(const std::vector<float>& v) {
  return {v.begin(), v.end()};
}
inline std::vector<float> floats(const Doubles& v) {
  return {v.begin(), v.end()};
}

/// The values as BF16 holds them.
inline std::vector<float> as_bf16(std::vector<float> v) {
  for (float& x : v) x = static_cast<float>(bf16(x));
  return v;
}

/// df / dx by central differences; f takes a whole tensor and returns a double.
template <class F>
std::vector<float> gradient(const F& f, const std::vector<float>& at, double step = 1e-5) {
  Doubles x = doubles(at);
  std::vector<float> result;
  for (double& value : x) {
    const double before = value;
    value = before + step;
    const double above = f(std::as_const(x));
    value = before - step;
    const double below = f(std::as_const(x));
    value = before;
    result.push_back(static_cast<float>((above - below) / (2 * step)));
  }
  return result;
}

/// sum of a[i] b[i]: with b fixed, its gradient through a is the vector-Jacobian product that a backward op computes.
inline double dot(const Doubles& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < b.size(); ++i) sum += a[i] * static_cast<double>(b[i]);
  return sum;
}

inline constexpr double kBf16Bound = 1.0 / 256;  // one rounding to BF16 moves a value by at most 2^-9 of it

}  // namespace moesaic::test
