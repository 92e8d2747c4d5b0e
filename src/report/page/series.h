#pragma once
// A long series in as many points as a chart can show.
#include <cstdint>
#include <span>
#include <vector>

namespace moesaic {

struct Point {
  double x = 0, y = 0;  // y is NaN where nothing was measured: the line has a gap there
  bool operator==(const Point&) const = default;
};

struct Decimated {
  /// The line: per bucket its least and its largest value, in the order of x. Every extreme of the series is there.
  std::vector<Point> extremes;
  /// The mean of each bucket at the middle of its x; empty when nothing had to be left out, since it would be the line.
  std::vector<Point> means;
};

/// `x` never falls; one y for each. Up to 2 * buckets points stay as they are; more are put into `buckets` buckets of equal
/// width in x. Values that are not shown (scale.h) become NaN; a bucket of nothing else is one gap.
Decimated decimate(std::span<const double> x, std::span<const double> y, size_t buckets);

}  // namespace moesaic
