#pragma once
// Axes: which interval of numbers a chart shows and where it writes them.
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace moesaic {

struct Axis {
  double low = 0, high = 1;  // low < high; both above 0 when `log`
  bool log = false;
  std::vector<double> ticks;  // ascending, within [low, high]
  std::vector<std::string>
      labels;  // one for each tick, in one common form: "0.5" beside "1.0", "10k" beside "20k"

  /// Where a value lies, from 0 (low) to 1 (high); outside of that for values outside.
  double at(double value) const;
};

/// An interval of the finite numbers among `values`, or nothing when there is none. Numbers beyond 1e30 count as not finite:
/// no honest metric reaches them, and differences stay in range.
struct Extent {
  double low, high;
};
std::optional<Extent> extent_of(std::span<const double> values);
std::optional<Extent> join(std::optional<Extent> a, std::optional<Extent> b);
bool is_shown(double value);

/// About `wanted` ticks at multiples of 1, 2 or 5 times a power of ten. `padded` widens the interval to the ticks around it
/// (for y axes); else it stays as it is (for x axes). An interval of one number is widened around it.
Axis linear_axis(Extent extent, int wanted, bool padded);
/// A logarithmic axis over decades (with 2 and 5 between them when there are few); extent.low > 0.
Axis log_axis(Extent extent);

}  // namespace moesaic
