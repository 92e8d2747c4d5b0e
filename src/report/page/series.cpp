#include "report/page/series.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "report/page/scale.h"

namespace moesaic {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Bucket {
  Point least, largest;
  double sum_x = 0, sum_y = 0;
  int64_t count = 0;

  void add(Point p) {
    if (count == 0 || p.y < least.y) least = p;
    if (count == 0 || p.y > largest.y) largest = p;
    sum_x += p.x, sum_y += p.y;
    ++count;
  }
};

void put(const Bucket& bucket, double x, Decimated& out) {
  if (bucket.count == 0) {
    out.extremes.push_back({x, kNan});
    out.means.push_back({x, kNan});
    return;
  }
  const auto& [first, second] =
      std::minmax(bucket.least, bucket.largest, [](const Point& a, const Point& b) { return a.x < b.x; });
  out.extremes.push_back(first);
  if (second.x != first.x) out.extremes.push_back(second);
  const auto count = static_cast<double>(bucket.count);
  out.means.push_back({bucket.sum_x / count, bucket.sum_y / count});
}

}  // namespace

Decimated decimate(std::span<const double> x, std::span<const double> y, size_t buckets) {
  MOESAIC_CHECK(x.size() == y.size() && buckets > 0, "{} x, {} y, {} buckets", x.size(), y.size(), buckets);
  Decimated out;
  if (x.size() <= 2 * buckets) {
    for (size_t i = 0; i < x.size(); ++i) out.extremes.push_back({x[i], is_shown(y[i]) ? y[i] : kNan});
    return out;
  }
  const double width = (x.back() - x.front()) / static_cast<double>(buckets);
  Bucket bucket;
  size_t number = 0;
  double begin = x.front();
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t here =
        width > 0 ? std::min(static_cast<size_t>((x[i] - x.front()) / width), buckets - 1) : 0;
    if (here != number) {
      put(bucket, begin, out);
      bucket = {}, number = here, begin = x[i];
    }
    if (is_shown(y[i])) bucket.add({x[i], y[i]});
  }
  put(bucket, begin, out);
  return out;
}

}  // namespace moesaic
