#include "ops/grouped_matmul/grouped_matmul.h"

#include <numeric>

#include "support/parity.h"

namespace moesaic::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Case {
  std::vector<int32_t> sizes;
  int64_t n, k;
  bool trans_w = true;
  bool map_x = false, map_dy = false;
  DType in = DType::bf16, other_in = DType::bf16, out = DType::bf16;
  int64_t spare = 70;  // rows that no group owns

  int64_t num_groups() const { return static_cast<int64_t>(sizes.size()); }
  int64_t used() const { return std::accumulate(sizes.begin(), sizes.end(), int64_t{0}); }
  int64_t num_rows() const { return used() + spare; }
  int64_t in_width() const { return trans_w ? k : n; }
  int64_t out_width() const { return trans_w ? n : k; }
  std::string str() const {
    return fmt::format("{} groups, {} rows, n {}, k {}, trans_w {}, maps {} {}, {} {} {}", num_groups(),
                       used(), n, k, trans_w, map_x, map_dy, name_of(in), name_of(other_in), name_of(out));
  }
};

Handle offsets_of(OpRunner& r, const Case& c) {
  std::vector<int32_t> offsets{0};
  for (const int32_t size : c.sizes) offsets.push_back(offsets.back() + size);
  return r.ints("offsets", {c.num_groups() + 1}, offsets);
}

struct Mapped {
  Handle rows, map;
};

/// Rows of the groups in their order, or strewn and led to by a map whose entries past the groups lead nowhere. Rows that no
/// group reads are NaN.
Mapped rows_of(OpRunner& r, const Case& c, const std::string& name, int64_t width, bool mapped, DType type,
               uint64_t seed) {
  const int64_t count = mapped ? 3 * c.used() + 5 : c.num_rows();
  const auto at = [&](int64_t row) { return mapped ? (7 * row + static_cast<int64_t>(seed)) % count : row; };
  std::vector<float> values(static_cast<size_t>(count * width), kNan);
  std::vector<int32_t> map(static_cast<size_t>(c.num_rows()), 0x7fffffff);
  const std::vector<float> drawn = fresh_randn(std::max<int64_t>(c.used(), 1) * width, seed);
  for (int64_t row = 0; row < c.used(); ++row) {
    map[static_cast<size_t>(row)] = static_cast<int32_t>(at(row));
    std::copy_n(drawn.begin() + row * width, width, values.begin() + at(row) * width);
  }
  return {r.tensor(name, {count, width}, values, type),
          mapped ? r.ints(name + "_rows", {c.num_rows()}, map) : Handle{}};
}

/// BF16 outputs: the FP32 results differ in the last bits, so a few numbers round to the other neighbour (2^-8 apart); few
/// among many are little, one among a handful is all. FP32 outputs: tensor cores cut what they add to 24 bits, 16 products at
/// a time; other sums differ by their order alone.
Bounds bounds_of(const Case& c, int64_t num_outputs) {
  return {.bf16 = num_outputs > 1000 ? 1e-3 : 4e-3, .f32 = c.in == DType::f32 ? 1e-5 : 2e-5};
}

/// Each part alone, beside rows of the other part that must be as they were.
void expect_parts(const Case& c) {
  SCOPED_TRACE(c.str());
  using Part = ops::GroupedMatmul::Part;
  for (const Part part : {Part::front, Part::rest})
    expect_parity(bounds_of(c, c.used() * c.out_width()), [&](OpRunner& r) -> Outputs {
      const Mapped x = rows_of(r, c, "x", c.in_width(), c.map_x, c.in, 1);
      const Handle w =
          r.tensor("w", {c.num_groups(), c.n, c.k}, fresh_randn(c.num_groups() * c.n * c.k, 2), c.in);
      const Handle y =
          r.tensor("y", {c.num_rows(), c.out_width()}, fresh_randn(c.num_rows() * c.out_width(), 3), c.out);
      std::vector<int32_t> split;
      int32_t begin = 0;
      for (const int32_t size : c.sizes) {
        split.push_back(begin + size / 3);
        begin += size;
      }
      ops::GroupedMatmul args{.x = x.rows,
                              .x_rows = x.map,
                              .w = w,
                              .offsets = offsets_of(r, c),
                              .y = y,
                              .split = r.ints("split", {c.num_groups()}, split),
                              .part = part,
                              .trans_w = c.trans_w};
      Outputs outputs{y};
      if (c.map_x) {
        const int64_t count = c.num_rows() * c.in_width();
        args.x_in_order = r.tensor("x_in_order", {c.num_rows(), c.in_width()}, fresh_randn(count, 4), c.in);
        outputs.push_back(args.x_in_order);
      }
      ops::grouped_matmul(r.program(), Stream::compute, args);
      return outputs;
    });
}

/// The rows of the groups, and the rows after them, which must be as they were.
void expect_product(const Case& c) {
  SCOPED_TRACE(c.str());
  expect_parity(bounds_of(c, c.used() * c.out_width()), [&](OpRunner& r) -> Outputs {
    const Mapped x = rows_of(r, c, "x", c.in_width(), c.map_x, c.in, 1);
    const Handle w =
        r.tensor("w", {c.num_groups(), c.n, c.k}, fresh_randn(c.num_groups() * c.n * c.k, 2), c.in);
    const Handle y =
        r.tensor("y", {c.num_rows(), c.out_width()}, fresh_randn(c.num_rows() * c.out_width(), 3), c.out);
    ops::grouped_matmul(
        r.program(), Stream::compute,
        {.x = x.rows, .x_rows = x.map, .w = w, .offsets = offsets_of(r, c), .y = y, .trans_w = c.trans_w});
    return {r.program().view(y, 0, {c.used(), c.out_width()}, "rows of groups"),
            r.program().view(y, c.used() * c.out_width(), {c.spare, c.out_width()}, "rows after them")};
  });
}

void expect_weight_grad(const Case& c, bool accumulate) {
  SCOPED_TRACE(c.str() + (accumulate ? ", accumulate" : ""));
  expect_parity(bounds_of(c, c.num_groups() * c.n * c.k), [&](OpRunner& r) -> Outputs {
    const Mapped dy = rows_of(r, c, "dy", c.n, c.map_dy, c.in, 1),
                 x = rows_of(r, c, "x", c.k, c.map_x, c.other_in, 2);
    const Handle dw =
        r.tensor("dw", {c.num_groups(), c.n, c.k},
                 accumulate ? fresh_randn(c.num_groups() * c.n * c.k, 3) : std::vector<float>{});
    ops::grouped_matmul_weight_grad(r.program(), Stream::compute,
                                    {.dy = dy.rows,
                                     .dy_rows = dy.map,
                                     .x = x.rows,
                                     .x_rows = x.map,
                                     .offsets = offsets_of(r, c),
                                     .dw = dw,
                                     .accumulate = accumulate,
                                     .expected_rows = static_cast<double>(c.used())});
    return {dw};
  });
}
void expect_weight_grad(const Case& c) {
  for (const bool accumulate : {true, false}) expect_weight_grad(c, accumulate);
}

const std::vector<std::vector<int32_t>> kSizes = {{40, 40, 40},
                                                  {0, 129, 0, 1},
                                                  {1, 1, 1, 1},
                                                  {0, 0, 0},
                                                  {0, 700, 0},
                                                  {600, 0, 17},
                                                  {64, 128, 2, 255, 256, 257},
                                                  {333}};

/// Widths that tensor cores take, from a fraction of a tile to more than a cluster's two.
const std::vector<std::pair<int64_t, int64_t>> kWidths = {
    {8, 8}, {64, 40}, {264, 136}, {520, 72}, {16, 1032}};

TEST(GroupedMatmulParity, AnyGroupSizes) {
  for (const auto& sizes : kSizes)
    for (const auto& [n, k] : kWidths)
      for (const bool trans_w : {true, false})
        for (const bool mapped : {false, true})
          expect_product({.sizes = sizes, .n = n, .k = k, .trans_w = trans_w, .map_x = mapped});
}

TEST(GroupedMatmulParity, PartsOfGroups) {
  for (const auto& sizes : kSizes)
    for (const bool trans_w : {true, false})
      for (const bool mapped : {false, true})
        for (const auto& [n, k, in] : {std::tuple(264, 136, DType::bf16), std::tuple(19, 23, DType::f32)})
          expect_parts({.sizes = sizes,
                        .n = n,
                        .k = k,
                        .trans_w = trans_w,
                        .map_x = mapped,
                        .in = in,
                        .other_in = in,
                        .out = in});
}

TEST(GroupedMatmulParity, OddWidthsAndEveryType) {
  for (const auto& sizes : kSizes)
    for (const bool trans_w : {true, false})
      for (const bool mapped : {false, true})
        for (const DType in : {DType::f32, DType::bf16})
          for (const DType out : {DType::f32, DType::bf16}) {
            expect_product({.sizes = sizes,
                            .n = 19,
                            .k = 23,
                            .trans_w = trans_w,
                            .map_x = mapped,
                            .in = in,
                            .out = out});
            if (in == DType::f32 || out == DType::f32)
              expect_product({.sizes = sizes,
                              .n = 24,
                              .k = 40,
                              .trans_w = trans_w,
                              .map_x = mapped,
                              .in = in,
                              .out = out});
          }
}

TEST(GroupedMatmulParity, MoreGroupsThanAWarpHasLanes) {
  std::vector<int32_t> sizes(70, 0);
  for (size_t i = 3; i < 66; i += 1 + i % 5) sizes[i] = static_cast<int32_t>(i * i % 150);
  for (const bool trans_w : {true, false})
    expect_product({.sizes = sizes, .n = 264, .k = 72, .trans_w = trans_w});
  expect_weight_grad({.sizes = sizes, .n = 264, .k = 72});
}

TEST(GroupedMatmulParity, LongSums) {
  const std::vector<int32_t> sizes = {130, 0, 257};
  expect_product({.sizes = sizes, .n = 520, .k = 4096, .map_x = true});
  expect_product({.sizes = sizes, .n = 4096, .k = 520, .trans_w = false, .map_x = true});
  expect_weight_grad({.sizes = {4096, 0, 1000}, .n = 264, .k = 520, .map_dy = true});
  expect_weight_grad({.sizes = {9000, 0, 3500}, .n = 264, .k = 520, .map_x = true});
}

/// Each block makes several tiles, of several groups.
TEST(GroupedMatmulParity, MoreTilesThanBlocks) {
  const std::vector<int32_t> sizes = {1500, 0, 1, 2300, 800};
  expect_product({.sizes = sizes, .n = 2064, .k = 64});
  expect_product({.sizes = sizes, .n = 64, .k = 2064, .trans_w = false});
  expect_weight_grad({.sizes = {70, 0, 40, 1}, .n = 4096, .k = 1040});
  expect_weight_grad({.sizes = {70, 0, 40, 1}, .n = 1040, .k = 4096});
}

TEST(GroupedMatmulParity, NoSpareRows) {
  expect_product({.sizes = {100, 28}, .n = 64, .k = 64, .spare = 0});
  expect_weight_grad({.sizes = {100, 28}, .n = 64, .k = 64, .spare = 0});
}

/// Tensors that begin in the middle of another one, where TMA cannot go.
TEST(GroupedMatmulParity, UnalignedTensors) {
  const int64_t rows = 90, n = 64, k = 40;
  expect_parity({.bf16 = 1e-3, .f32 = 2e-5}, [&](OpRunner& r) -> Outputs {
    Program& g = r.program();
    const Handle x = r.tensor("x", {rows * k + 1}, fresh_randn(rows * k + 1, 1), DType::bf16),
                 dy = r.tensor("dy", {rows * n + 3}, fresh_randn(rows * n + 3, 2), DType::bf16),
                 w = r.tensor("w", {2, n, k}, fresh_randn(2 * n * k, 3), DType::bf16),
                 y = r.tensor("y", {rows, n}, fresh_randn(rows * n, 4), DType::bf16),
                 dw = r.tensor("dw", {2, n, k}, fresh_randn(2 * n * k, 5)),
                 offsets = r.ints("offsets", {3}, {0, 50, 90});
    const Handle x_inside = g.view(x, 1, {rows, k}), dy_inside = g.view(dy, 3, {rows, n});
    ops::grouped_matmul(g, Stream::compute, {.x = x_inside, .w = w, .offsets = offsets, .y = y});
    ops::grouped_matmul_weight_grad(g, Stream::compute,
                                    {.dy = dy_inside, .x = x_inside, .offsets = offsets, .dw = dw});
    return {y, dw};
  });
}

TEST(GroupedMatmulWeightGradParity, AddsToWhatIsThere) {
  for (const auto& sizes : kSizes)
    for (const auto& [n, k] : kWidths)
      for (const bool map_x : {false, true})
        for (const bool map_dy : {false, true})
          expect_weight_grad({.sizes = sizes, .n = n, .k = k, .map_x = map_x, .map_dy = map_dy});
}

TEST(GroupedMatmulWeightGradParity, OddWidthsAndEveryType) {
  for (const auto& sizes : kSizes)
    for (const bool mapped : {false, true})
      for (const DType dy : {DType::f32, DType::bf16})
        for (const DType x : {DType::f32, DType::bf16})
          expect_weight_grad({.sizes = sizes,
                              .n = 19,
                              .k = 23,
                              .map_x = mapped,
                              .map_dy = !mapped,
                              .in = dy,
                              .other_in = x});
}

}  // namespace
}  // namespace moesaic::test
