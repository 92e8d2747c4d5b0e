#pragma once
// What this machine can do on a run's threads, measured, and the time that an op needs at least by that.
#include <vector>

#include "config/config.h"
#include "device/cost.h"

namespace moesaic {

/// Bytes read + written per second by a rank whose threads each copy within `bytes` of memory, source and copy together.
struct CopyRate {
  int64_t bytes = 0;
  double bytes_per_s = 0;
};

/// What one kind of product reaches alone; shapes as in Cost.
struct ProductRate {
  Work work;
  int64_t m, n, k;
  bool adds;
  double operations_per_s;
};

/// Of one rank, while all ranks do the same: on the CPU the best of several repeats, since a floor is what nothing goes below.
struct Ceilings {
  std::vector<CopyRate> copy;  // by ascending bytes, from what caches hold to far more
  double matmul_operations_per_s =
      0;  // a product of 256 x 512 x 512 on each thread; on a GPU of 8192 x 8192 x 8192
  std::vector<ProductRate> products;  // on a GPU, where the rate depends much on the shape
  int64_t num_threads = 1;            // of the rank

  /// The rate for an op that moves `bytes`, an equal share on each thread: that of the largest working set that was measured
  /// and is not above the share, or of a larger one if that was faster.
  double copy_rate(double bytes) const;
  /// The rate of this product's shape; null when it was not measured.
  const ProductRate* find(const Cost& cost) const;
};
/// On CPU ranks; ConfigError for another device (gpu_ceilings.h).
Ceilings measure_ceilings(const Config& config);

/// Products: by operations or by bytes, whichever takes longer; everything else by bytes.
double floor_seconds(const Cost& cost, const Ceilings& ceilings);

}  // namespace moesaic
