#include "ops/grouped_matmul/grouped_matmul_cpu.h"

#include "ops/matmul/product.h"

namespace moesaic::ops {
namespace {

/// One piece of work: [first, first + size) of what a group is cut into.
struct Block {
  int64_t group, first, size;
};

/// Group i has extents(i) to cut, in pieces of kProductRows.
template <class Extents>
const std::vector<Block>& cut_groups(int64_t num_groups, const Extents& extents) {
  thread_local std::vector<Block> blocks;
  blocks.clear();
  for (int64_t group = 0; group < num_groups; ++group) {
    const auto [begin, end] = extents(group);
    for (int64_t first = begin; first < end; first += kProductRows)
      blocks.push_back({group, first, std::min(kProductRows, end - first)});
  }
  return blocks;
}

const int32_t* checked_offsets(const OpContext& c, Handle offsets, int64_t num_groups, int64_t num_rows) {
  const int32_t* at = c.in<int32_t>(offsets);
  for (int64_t i = 0; i < num_groups; ++i)
    MOESAIC_CHECK(0 <= at[i] && at[i] <= at[i + 1] && at[i + 1] <= num_rows, "group {}: rows {} to {} of {}",
                  i, at[i], at[i + 1], num_rows);
  return at;
}

/// Rows [first, first + rows) of a matrix, or of what its map leads to.
template <class Use, class T>
Floats mapped_rows(const T* from, int64_t stride, const int32_t* map, int64_t first, int64_t rows,
                   int64_t cols) {
  return map ? float_rows<Use>(from, stride, map + first, rows, cols)
             : float_rows<Use>(from + first * stride, stride, nullptr, rows, cols);
}

template <class T, class Y>
void forward(const OpContext& c, const GroupedMatmul& args) {
  const Shape& w_shape = c.shape(args.w);
  const int64_t num_groups = w_shape[0], out_rows = w_shape[1], out_cols = w_shape[2];
  const int64_t n = args.trans_w ? out_rows : out_cols, k = args.trans_w ? out_cols : out_rows;
  const T *x = c.in<T>(args.x), *w = c.in<T>(args.w);
  const int32_t* map = in_or_null<int32_t>(c, args.x_rows);
  const int32_t* offsets = checked_offsets(c, args.offsets, num_groups, c.shape(args.y).rows());
  Y* y = c.out<Y>(args.y);
  const auto& blocks = cut_groups(
      num_groups, [&](int64_t i) { return std::pair<int64_t, int64_t>(offsets[i], offsets[i + 1]); });
  parallel_for(static_cast<int64_t>(blocks.size()), [&](int64_t i) {
    const Block& block = blocks[static_cast<size_t>(i)];
    const Floats a = mapped_rows<struct GroupedX>(x, k, map, block.first, block.size, k);
    const Floats b =
        float_rows<struct GroupedW>(w + block.group * n * k, out_cols, nullptr, out_rows, out_cols);
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
  const int32_t* offsets = checked_offsets(c, args.offsets, num_groups, num_rows);
  float* dw = c.inout<float>(args.dw);
  const auto& blocks = cut_groups(num_groups, [&](int64_t) { return std::pair<int64_t, int64_t>(0, n); });
  parallel_for(static_cast<int64_t>(blocks.size()), [&](int64_t i) {
    const Block& block = blocks[static_cast<size_t>(i)];
    const int64_t end = offsets[block.group + 1];
    for (int64_t row = offsets[block.group]; row < end; row += kProductRows) {
      const int64_t rows = std::min(kProductRows, end - row);
      const Floats a = mapped_rows<struct GroupedDy>(dy + block.first, n, dy_map, row, rows, block.size);
      const Floats b = mapped_rows<struct GroupedX>(x, k, x_map, row, rows, k);
      block_product(true, false, block.size, k, rows, a, b, true, dw + (block.group * n + block.first) * k);
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
