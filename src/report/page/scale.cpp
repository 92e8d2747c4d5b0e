#include "report/page/scale.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace moesaic {
namespace {

constexpr double kLargest = 1e30;

// The number of decimals that tells multiples of `step` apart.
int decimals_of(double step) {
  return std::clamp(static_cast<int>(std::ceil(-std::log10(step) - 1e-9)), 0, 9);
}

std::vector<std::string> linear_labels(const std::vector<double>& ticks, double step) {
  double largest = 0;
  for (const double tick : ticks) largest = std::max(largest, std::abs(tick));
  double unit = 1;
  const char* suffix = "";
  const bool small = largest > 0 && largest < 1e-3, huge = largest >= 1e15;
  if (!huge) {
    for (const auto& [size, name] : {std::pair(1e12, "T"), {1e9, "B"}, {1e6, "M"}, {1e3, "k"}}) {
      if (largest < size || (size == 1e3 && largest < 1e4)) continue;
      if (decimals_of(step / size) <= 4) unit = size, suffix = name;
      break;
    }
  }
  std::vector<std::string> labels;
  for (const double tick : ticks) {
    if (tick == 0) {
      labels.emplace_back("0");
    } else if (small || huge) {
      const int exponent = static_cast<int>(std::floor(std::log10(largest) + 1e-9));
      const double power = std::pow(10.0, exponent);
      labels.push_back(fmt::format("{:.{}f}e{}", tick / power, decimals_of(step / power), exponent));
    } else {
      labels.push_back(fmt::format("{:.{}f}{}", tick / unit, decimals_of(step / unit), suffix));
    }
  }
  return labels;
}

std::string log_label(double tick) {
  if (tick >= 1e4 || tick < 1e-3) {
    const int exponent = static_cast<int>(std::floor(std::log10(tick) + 1e-9));
    return fmt::format("{:.0f}e{}", tick / std::pow(10.0, exponent), exponent);
  }
  return fmt::format("{:g}", tick);
}

Extent widened(Extent e) {
  if (e.high > e.low + 1e-12 * std::max(std::abs(e.low), std::abs(e.high))) return e;
  const double by = e.low == 0 ? 1 : 0.05 * std::abs(e.low);
  return {e.low - by, e.high + by};
}

}  // namespace

bool is_shown(double value) {
  return std::abs(value) <= kLargest;  // false for NaN
}

std::optional<Extent> extent_of(std::span<const double> values) {
  std::optional<Extent> extent;
  for (const double value : values)
    if (is_shown(value)) extent = join(extent, Extent{value, value});
  return extent;
}

std::optional<Extent> join(std::optional<Extent> a, std::optional<Extent> b) {
  if (!a || !b) return a ? a : b;
  return Extent{std::min(a->low, b->low), std::max(a->high, b->high)};
}

double Axis::at(double value) const {
  if (log) return std::log(value / low) / std::log(high / low);
  return (value - low) / (high - low);
}

Axis linear_axis(Extent extent, int wanted, bool padded) {
  const Extent e = widened(extent);
  const double rough = (e.high - e.low) / std::max(wanted, 1);
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power < rough * (1 - 1e-9)) continue;
    step = factor * power;
    break;
  }
  Axis axis;
  double first = std::ceil(e.low / step - 1e-9), last = std::floor(e.high / step + 1e-9);
  if (padded) first = std::floor(e.low / step + 1e-9), last = std::ceil(e.high / step - 1e-9);
  axis.low = padded ? first * step : e.low;
  axis.high = padded ? last * step : e.high;
  for (double i = first; i <= last; ++i) axis.ticks.push_back(i * step);
  axis.labels = linear_labels(axis.ticks, step);
  return axis;
}

Axis log_axis(Extent extent) {
  MOESAIC_CHECK(extent.low > 0, "a logarithmic axis from {}", extent.low);
  Axis axis;
  axis.log = true;
  const Extent e = extent.high > extent.low ? extent : Extent{extent.low / 2, extent.high * 2};
  const bool few = std::log10(e.high / e.low) < 2;
  const double decades = std::log10(e.high / e.low);
  const int every = std::max(1, static_cast<int>(std::ceil(decades / 6)));
  std::vector<double> candidates;
  const int from = static_cast<int>(std::floor(std::log10(e.low))),
            to = static_cast<int>(std::ceil(std::log10(e.high)));
  for (int exponent = from; exponent <= to; exponent += few ? 1 : every) {
    candidates.push_back(std::pow(10.0, exponent));
    if (few) candidates.push_back(2 * candidates.back()), candidates.push_back(2.5 * candidates.back());
  }
  if (candidates.back() < e.high) candidates.push_back(candidates.back() * std::pow(10.0, every));
  // The ticks around the interval are its ends.
  auto first = std::upper_bound(candidates.begin(), candidates.end(), e.low * (1 + 1e-9));
  if (first != candidates.begin()) --first;
  const auto last = std::lower_bound(candidates.begin(), candidates.end(), e.high * (1 - 1e-9));
  axis.ticks.assign(first, last == candidates.end() ? last : last + 1);
  axis.low = axis.ticks.front(), axis.high = axis.ticks.back();
  for (const double tick : axis.ticks) axis.labels.push_back(log_label(tick));
  return axis;
}

}  // namespace moesaic
