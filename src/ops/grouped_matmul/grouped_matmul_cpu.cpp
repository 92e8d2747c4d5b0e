#include "ops/grouped_matmul/grouped_matmul_bodies.h"

#include "ops/matmul/product.h"
#include "ops/optional.h"

namespace moesaic::ops {
namespace {

/// One piece of work: [first, first + size) of what a group is cut into.
struct Block {
  int64_t group, first, size;
};

// Uses of scratch.
struct GroupedX;
struct GroupedDy;
struct GroupedW;

/// Group i has extents(i) to cut, in pieces of kProductRows; at most max_blocks pieces.
template <class Extents>
const std::vector<Block>& cut_groups(int64_t num_groups, int64_t max_blocks, const Extents& extents) {
  thread_local std::vector<Block> blocks;
  blocks.clear();
  blocks.reserve(static_cast<size_t>(max_blocks));
  for (int64_t group = 0; group < num_groups; ++group) {
    const auto [begin, end] = extents(group);
    for (int64_t first = begin; first < end; first += kProductRows)
      blocks.push_back({group, first, std::min(kProductRows, end - first)});
  }
  return blocks;
}

GroupRows checked(GroupRows rows, int64_t num_groups, int64_t num_rows) {
  int32_t last = 0;
  for (int64_t i = 0; i < num_groups; last = rows.ends[i++])
    MOESAIC_CHECK(last <= rows.begins[i] && rows.begins[i] <= rows.ends[i] && rows.ends[i] <= num_rows,
                  "group {}: rows {} to {} of {}", i, rows.begins[i], rows.ends[i], num_rows);
  return rows;
}

/// Rows [first, first + rows) of a matrix, or of what its map leads to.
template <class Use, class T>
Floats mapped_rows(const T* from, int64_t stride, const int32_t* map, int64_t first, int64_t rows,
                   int64_t cols) {
  return map ? float_rows<Use>(from, stride, map + first, rows, cols)
             : float_rows<Use>(from + first * stride, stride, nullptr, rows, cols);
}

/// Which thread meets which rows, and how many, depends on routing; what it takes for them must not.
template <class F>
void reserve_on_all_threads(const F& reserve) {
  parallel_for(num_threads(), [&](int64_t) { reserve(); });
}

template <class T, class Y>
void forward(const OpContext& c, const GroupedMatmul& args) {
  const Shape& w_shape = c.shape(args.w);
  const int64_t num_groups = w_shape[0], out_rows = w_shape[1], out_cols = w_shape[2];
  const int64_t n = args.trans_w ? out_rows : out_cols, k = args.trans_w ? out_cols : out_rows;
  const T *x = c.in<T>(args.x), *w = c.in<T>(args.w);
  const int32_t* map = in_or_null<int32_t>(c, args.x_rows);
  const int64_t num_rows = c.shape(args.y).rows(), max_rows = std::min(kProductRows, num_rows);
  const GroupRows rows = checked(group_rows(c, args), num_groups, num_rows);
  Y* y = c.out<Y>(args.y);
  reserve_on_all_threads([&] {
    reserve_float_rows<GroupedX, T>(map, max_rows, k);
    reserve_float_rows<GroupedW, T>(nullptr, out_rows, out_cols);
    reserve_block_product<Y>(false, args.trans_w, max_rows, n, k);
  });
  T* in_order = out_or_null<T>(c, args.x_in_order);
  const auto& blocks = cut_groups(num_groups, num_groups + num_rows / kProductRows, [&](int64_t i) {
    return std::pair<int64_t, int64_t>(rows.begins[i], rows.ends[i]);
  });
  parallel_for(static_cast<int64_t>(blocks.size()), [&](int64_t i) {
    const Block& block = blocks[static_cast<size_t>(i)];
    for (int64_t row = block.first; in_order != nullptr && row < block.first + block.size; ++row)
      std::copy_n(x + map[row] * k, k, in_order + row * k);
    const Floats a = mapped_rows<GroupedX>(x, k, map, block.first, block.size, k);
    const Floats b = float_rows<GroupedW>(w + block.group * n * k, out_cols, nullptr, out_rows, out_cols);
    block_product(false, args.trans_w, block.size, n, k, a, b, false, y + block.first * n);
  });
}

template <class DY, class X>
void weight_grad(const OpContext& c, const GroupedMatmulWeightGrad& args) {
  const Shape& w_shape = c.shape(args.dw);
  const int64_t num_groups = w_shape[0], n = w_shape[1], k = w_shape[2];
  const DY* dy = c.in<DY>(args.dy);
  const X* x = c.in<X>(args.x);
  const int32_t *dy_map = in_or_null<int32_t>(c, args.dy_rows), *x_map = in_or_null<int32_t>(c, args.x_rows);
  const int64_t num_rows = args.dy_rows ? c.shape(args.dy_rows).numel() : c.shape(args.dy).rows();
  const int32_t* offsets = c.in<int32_t>(args.offsets);
  checked({offsets, offsets + 1}, num_groups, num_rows);
  float* dw = args.accumulate ? c.inout<float>(args.dw) : c.out<float>(args.dw);
  const int64_t max_rows = std::min(kProductRows, num_rows), max_size = std::min(kProductRows, n);
  reserve_on_all_threads([&] {
    reserve_float_rows<GroupedDy, DY>(dy_map, max_rows, max_size);
    reserve_float_rows<GroupedX, X>(x_map, max_rows, k);
    reserve_block_product<float>(true, false, max_size, k, max_rows);
  });
  const auto& blocks = cut_groups(num_groups, num_groups * ceil_div(n, kProductRows),
                                  [&](int64_t) { return std::pair<int64_t, int64_t>(0, n); });
  parallel_for(static_cast<int64_t>(blocks.size()), [&](int64_t i) {
    const Block& block = blocks[static_cast<size_t>(i)];
    const int64_t begin = offsets[block.group], end = offsets[block.group + 1];
    float* to = dw + (block.group * n + block.first) * k;
    if (begin == end && !args.accumulate) std::fill_n(to, block.size * k, 0.0f);
    for (int64_t row = begin; row < end; row += kProductRows) {
      const int64_t rows = std::min(kProductRows, end - row);
      const Floats a = mapped_rows<GroupedDy>(dy + block.first, n, dy_map, row, rows, block.size);
      const Floats b = mapped_rows<GroupedX>(x, k, x_map, row, rows, k);
      block_product(true, false, block.size, k, rows, a, b, args.accumulate || row > begin, to);
    }
  });
}

}  // namespace

void grouped_matmul_cpu(const OpContext& c, const GroupedMatmul& args) {
  with_float(c.dtype(args.x), [&](auto x_zero) {
    with_float(c.dtype(args.y), [&](auto y_zero) { forward<decltype(x_zero), decltype(y_zero)>(c, args); });
  });
}

void grouped_matmul_weight_grad_cpu(const OpContext& c, const GroupedMatmulWeightGrad& args) {
  with_float(c.dtype(args.dy), [&](auto dy_zero) {
    with_float(c.dtype(args.x),
               [&](auto x_zero) { weight_grad<decltype(dy_zero), decltype(x_zero)>(c, args); });
  });
}

}  // namespace moesaic::ops
