#include "base/units.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace moesaic {

std::string format_bytes(int64_t bytes) {
  static constexpr std::array kNames{"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (std::abs(value) >= 1024 && unit + 1 < kNames.size()) value /= 1024, ++unit;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.2f} {}", value, kNames[unit]);
}

std::string format_count(double count) {
  static constexpr std::array kNames{"", "k", " M", " B", " T"};
  size_t unit = 0;
  while (std::abs(count) >= 1000 && unit + 1 < kNames.size()) count /= 1000, ++unit;
  return unit == 0 ? fmt::format("{:.4g}", count) : fmt::format("{:.2f}{}", count, kNames[unit]);
}

std::string format_flops(double operations) {
  static constexpr std::array kNames{"", "k", "M", "G", "T", "P"};
  size_t unit = 0;
  while (std::abs(operations) >= 1000 && unit + 1 < kNames.size()) operations /= 1000, ++unit;
  return fmt::format("{:.{}f} {}FLOP", operations, unit == 0 ? 0 : 2, kNames[unit]);
}

std::string format_seconds(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.0f} us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.1f} ms", seconds * 1e3);
  if (seconds < 60) return fmt::format("{:.1f} s", seconds);
  const int64_t whole = static_cast<int64_t>(seconds);
  if (whole < 3600) return fmt::format("{} min {:02d} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02d} min", whole / 3600, whole / 60 % 60);
}

}  // namespace moesaic
