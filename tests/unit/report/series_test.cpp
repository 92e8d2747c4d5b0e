#include "report/page/series.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace moesaic {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::vector<double> ascending(size_t count) {
  std::vector<double> x(count);
  std::iota(x.begin(), x.end(), 0.0);
  return x;
}

TEST(Decimate, AShortSeriesStaysAsItIs) {
  const Decimated d = decimate(ascending(3), std::vector{5.0, 4.0, 6.0}, 2);
  EXPECT_EQ(d.extremes, (std::vector<Point>{{0, 5}, {1, 4}, {2, 6}}));
  EXPECT_TRUE(d.means.empty());
}

TEST(Decimate, KeepsEveryBucketsExtremesInTheOrderOfX) {
  const auto x = ascending(8);
  const Decimated d = decimate(x, std::vector{1.0, 9.0, 2.0, 3.0, 8.0, 7.0, 0.0, 4.0}, 2);
  EXPECT_EQ(d.extremes, (std::vector<Point>{{0, 1}, {1, 9}, {4, 8}, {6, 0}}));
  EXPECT_EQ(d.means, (std::vector<Point>{{1.5, 3.75}, {5.5, 4.75}}));
}

TEST(Decimate, AMillionStepsKeepTheirSpikesInAThousandPoints) {
  const auto x = ascending(1'000'000);
  std::vector<double> y(x.size(), 2.0);
  y[0] = 11, y[123'456] = 99, y[777'777] = -5, y.back() = 7;
  const Decimated d = decimate(x, y, 500);
  EXPECT_LE(d.extremes.size(), 1000u);
  for (const Point spike : {Point{0, 11}, Point{123'456, 99}, Point{777'777, -5}, Point{999'999, 7}})
    EXPECT_NE(std::find(d.extremes.begin(), d.extremes.end(), spike), d.extremes.end()) << spike.x;
  EXPECT_TRUE(std::is_sorted(d.extremes.begin(), d.extremes.end(),
                             [](const Point& a, const Point& b) { return a.x < b.x; }));
}

TEST(Decimate, WhatIsNotFiniteIsAGapAndHidesNothing) {
  const double inf = std::numeric_limits<double>::infinity();
  const Decimated small = decimate(ascending(3), std::vector{1.0, inf, 2.0}, 2);
  EXPECT_TRUE(std::isnan(small.extremes[1].y));
  const Decimated d = decimate(ascending(8), std::vector{kNan, 1.0, kNan, 3.0, kNan, kNan, inf, kNan}, 2);
  ASSERT_EQ(d.extremes.size(), 3u);
  EXPECT_EQ(d.extremes[0], (Point{1, 1}));
  EXPECT_EQ(d.extremes[1], (Point{3, 3}));
  EXPECT_TRUE(std::isnan(d.extremes[2].y));
  EXPECT_EQ(d.means[0], (Point{2, 2}));
}

TEST(Decimate, TakesNothingAndEqualX) {
  EXPECT_TRUE(decimate({}, {}, 5).extremes.empty());
  const std::vector<double> same(100, 3.0);
  EXPECT_EQ(decimate(same, ascending(100), 5).extremes.front().y, 0);
}

}  // namespace
}  // namespace moesaic
