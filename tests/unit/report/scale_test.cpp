#include "report/page/scale.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace moesaic {
namespace {

using testing::ElementsAre;
using testing::Pointwise;

MATCHER(NearlyEqual, "") {
  return std::abs(std::get<0>(arg) - std::get<1>(arg)) <= 1e-12 * std::max(1.0, std::abs(std::get<1>(arg)));
}

TEST(LinearAxis, TicksAreRoundNumbersInsideAnIntervalThatStays) {
  const Axis axis = linear_axis({0, 149}, 6, false);
  EXPECT_EQ(axis.low, 0);
  EXPECT_EQ(axis.high, 149);
  EXPECT_THAT(axis.ticks, ElementsAre(0, 50, 100));
  EXPECT_THAT(axis.labels, ElementsAre("0", "50", "100"));
  EXPECT_DOUBLE_EQ(axis.at(74.5), 0.5);
}

TEST(LinearAxis, PaddingReachesTheTicksAround) {
  const Axis axis = linear_axis({1.93, 5.61}, 5, true);
  EXPECT_THAT(axis.ticks, Pointwise(NearlyEqual(), {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}));
  EXPECT_EQ(axis.low, 1);
  EXPECT_EQ(axis.high, 6);
  EXPECT_THAT(linear_axis({0, 4}, 4, true).ticks,
              ElementsAre(0, 1, 2, 3, 4));  // ends that are ticks stay ends
}

TEST(LinearAxis, LabelsShareOneForm) {
  EXPECT_THAT(linear_axis({0, 0.95}, 4, true).labels, ElementsAre("0", "0.5", "1.0"));
  EXPECT_THAT(linear_axis({0, 24000}, 3, true).labels, ElementsAre("0", "10k", "20k", "30k"));
  EXPECT_THAT(linear_axis({1e6, 1.5e6}, 2, true).labels, ElementsAre("1.0M", "1.5M"));
  EXPECT_THAT(linear_axis({0, 3e-4}, 3, true).labels, ElementsAre("0", "1e-4", "2e-4", "3e-4"));
  EXPECT_THAT(linear_axis({-2, 2}, 4, true).labels, ElementsAre("-2", "-1", "0", "1", "2"));
  EXPECT_THAT(linear_axis({0, 8000}, 4, true).labels, ElementsAre("0", "2000", "4000", "6000", "8000"));
}

TEST(LinearAxis, EveryIntervalHasAUsableAxis) {
  for (const double low : {-1e30, -7.3, -1e-300, 0.0, 1e-300, 1e-9, 3.0, 1e12, 1e30})
    for (const double size : {0.0, 1e-300, 1e-9, 1.0, 1e3, 1e30})
      for (const bool padded : {false, true}) {
        const Axis axis = linear_axis({low, low + size}, 5, padded);
        ASSERT_LT(axis.low, axis.high) << low << " " << size;
        ASSERT_LE(axis.ticks.size(), 12u) << low << " " << size;
        ASSERT_EQ(axis.ticks.size(), axis.labels.size());
        ASSERT_TRUE(std::isfinite(axis.at(low))) << low << " " << size;
        for (const std::string& label : axis.labels)
          ASSERT_LE(label.size(), 14u) << low << " " << size << " " << label;
      }
}

TEST(LogAxis, HasDecadesAndStepsBetweenFewOfThem) {
  const Axis wide = log_axis({0.013, 700});
  EXPECT_THAT(wide.ticks, Pointwise(NearlyEqual(), {0.01, 0.1, 1.0, 10.0, 100.0, 1000.0}));
  EXPECT_THAT(wide.labels, ElementsAre("0.01", "0.1", "1", "10", "100", "1000"));
  EXPECT_NEAR(wide.at(std::sqrt(0.01 * 1000)), 0.5, 1e-12);
  EXPECT_THAT(log_axis({0.3, 4}).ticks, Pointwise(NearlyEqual(), {0.2, 0.5, 1.0, 2.0, 5.0}));
}

TEST(LogAxis, EveryIntervalHasAUsableAxis) {
  for (const double low : {1e-300, 1e-20, 0.2, 1.0, 7.0, 1e15, 1e29})
    for (const double ratio : {1.0, 1.001, 3.0, 10.0, 99.0, 1e5, 1e28}) {
      const Axis axis = log_axis({low, low * ratio});
      ASSERT_LE(axis.low, low * (1 + 1e-8));
      ASSERT_GE(axis.high, low * ratio * (1 - 1e-8)) << low << " " << ratio;
      ASSERT_GE(axis.ticks.size(), 2u) << low << " " << ratio;
      ASSERT_LE(axis.ticks.size(), 9u) << low << " " << ratio;
      ASSERT_TRUE(std::isfinite(axis.at(low)));
    }
}

TEST(Extent, PassesOverWhatIsNotShown) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  const std::vector<double> mixed{nan, 3, -inf, 1, 1e31, 2}, nothing{nan, inf};
  EXPECT_EQ(extent_of(mixed)->low, 1);
  EXPECT_EQ(extent_of(mixed)->high, 3);
  EXPECT_FALSE(extent_of(nothing));
  EXPECT_FALSE(extent_of({}));
}

}  // namespace
}  // namespace moesaic
