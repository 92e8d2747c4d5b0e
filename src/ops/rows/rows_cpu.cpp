#include "ops/rows/rows_bodies.h"

#include <algorithm>

#include "ops/cpu_op.h"

namespace moesaic::ops {
namespace {

template <class X, class A, class Y>
void sum(const OpContext& c, const SumRows& args) {
  const int64_t width = c.shape(args.y)[-1], num_entries = c.shape(args.map)[-1];
  const X* x = c.in<X>(args.x);
  const A* add = in_or_null<A>(c, args.add);
  Y* y = c.out<Y>(args.y);
  const int32_t *map = c.in<int32_t>(args.map), *map_row = in_or_null<int32_t>(c, args.map_row);
  parallel_for(count_rows(c, args.count_of, c.shape(args.y).rows()), [&](int64_t i) {
    const int32_t* entries = map + (map_row ? map_row[i] : i) * num_entries;
    float* total = scratch<struct SumRow>(width);
    if (add)
      convert(add + i * width, total, width);
    else
      std::fill_n(total, width, 0.0f);
    for (int64_t k = 0; k < num_entries; ++k) {
      if (entries[k] < 0) continue;
      const X* from = x + entries[k] * width;
      for (int64_t j = 0; j < width; ++j) total[j] += static_cast<float>(from[j]);
    }
    convert(total, y + i * width, width);
  });
}

}  // namespace

void gather_rows_cpu(const OpContext& c, const GatherRows& args) {
  const auto row_bytes = static_cast<size_t>(c.shape(args.y)[-1] * size_of(c.dtype(args.y)));
  const std::byte* x = c.in_bytes(args.x);
  const int32_t* map = c.in<int32_t>(args.map);
  std::byte* y = c.out_bytes(args.y);
  parallel_for(count_rows(c, args.count_of, c.shape(args.y).rows()), [&](int64_t i) {
    std::memcpy(y + static_cast<size_t>(i) * row_bytes, x + static_cast<size_t>(map[i]) * row_bytes,
                row_bytes);
  });
}

void sum_rows_cpu(const OpContext& c, const SumRows& args) {
  with_float(c.dtype(args.x), [&](auto x_zero) {
    with_float(c.dtype(args.add ? args.add : args.y), [&](auto add_zero) {
      with_float(c.dtype(args.y),
                 [&](auto y_zero) { sum<decltype(x_zero), decltype(add_zero), decltype(y_zero)>(c, args); });
    });
  });
}

}  // namespace moesaic::ops
