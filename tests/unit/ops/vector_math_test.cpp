#include "ops/vector_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace moesaic::ops {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(FastExp, StaysWithinItsErrorOverTheWholeRange) {
  double worst = 0;
  for (int i = 0; i <= 2000000; ++i) {
    const float x = -86.9f + static_cast<float>(i) * (175.6f / 2000000);
    const double exact = std::exp(static_cast<double>(x));
    worst = std::max(worst, std::abs(static_cast<double>(fast_exp(x)) - exact) / exact);
  }
  EXPECT_LT(worst, 1e-7);
}

TEST(FastExp, EndsInZeroInfinityAndNaN) {
  EXPECT_EQ(fast_exp(0), 1);
  for (float x : {-87.0f, -104.0f, -1e4f, -1e30f, -kInf}) EXPECT_EQ(fast_exp(x), 0) << x;
  for (float x : {88.73f, 1e3f, 1e30f, kInf}) EXPECT_EQ(fast_exp(x), kInf) << x;
  EXPECT_LT(fast_exp(88.72283f), kInf);
  EXPECT_TRUE(std::isnan(fast_exp(std::numeric_limits<float>::quiet_NaN())));
}

TEST(FastSilu, IsFiniteForAnyFiniteInput) {
  for (float x : {-3e38f, -200.0f, -88.0f, -1.0f, 0.0f, 1.0f, 88.0f, 3e38f}) {
    const double exact = static_cast<double>(x) / (1 + std::exp(-static_cast<double>(x)));
    EXPECT_NEAR(static_cast<double>(fast_silu(x)), exact, 2e-7 * std::abs(exact) + 1e-35) << x;
    EXPECT_NEAR(fast_sigmoid(x), 1 / (1 + std::exp(-static_cast<double>(x))), 2e-7) << x;
  }
}

TEST(LaneSum, AddsEveryElementOnceForAnyCount) {
  for (int64_t count : {0, 1, 15, 16, 17, 31, 33, 1000}) {
    const float sum = lane_sum(count, [](int64_t i) { return static_cast<float>(i + 1); });
    EXPECT_EQ(sum, static_cast<float>(count * (count + 1) / 2)) << count;
  }
}

}  // namespace
}  // namespace moesaic::ops
