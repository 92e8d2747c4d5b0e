#include "ops/grouped_matmul/grouped_matmul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "support/op_runner.h"
#include "support/reference.h"

namespace moesaic::test {
namespace {

constexpr int64_t kN = 19, kK = 23;

std::vector<int32_t> offsets_of(const std::vector<int32_t>& sizes) {
  std::vector<int32_t> offsets{0};
  for (int32_t size : sizes) offsets.push_back(offsets.back() + size);
  return offsets;
}

/// A shuffled list of rows below `bound`; neighbours differ.
std::vector<int32_t> some_map(int64_t count, int64_t bound) {
  std::vector<int32_t> map;
  for (int64_t i = 0; i < count; ++i) map.push_back(static_cast<int32_t>((i * 7 + 3) % bound));
  return map;
}

using Part = ops::GroupedMatmul::Part;

struct Case {
  std::vector<int32_t> sizes;
  int64_t num_rows;  // R: at least the sum of sizes
  bool mapped = false;
  bool trans_w = true;
  DType in = DType::f32, out = DType::f32;
  int num_threads = 1;
  std::vector<Part> parts = {};  // in this order; none: the whole. The front is a third of each group

  int64_t num_groups() const { return static_cast<int64_t>(sizes.size()); }
  int64_t used() const { return std::accumulate(sizes.begin(), sizes.end(), int64_t{0}); }
  int64_t source_rows() const { return mapped ? 37 : num_rows; }
  int64_t in_cols() const { return trans_w ? kK : kN; }
  int64_t out_cols() const { return trans_w ? kN : kK; }
};

std::vector<int32_t> splits_of(const Case& c) {
  std::vector<int32_t> splits = offsets_of(c.sizes);
  splits.pop_back();
  for (size_t i = 0; i < c.sizes.size(); ++i) splits[i] += c.sizes[i] / 3;
  return splits;
}

/// Calls f(group, row, row of x) for each row that a group owns.
template <class F>
void each_row(const Case& c, const F& f) {
  const auto offsets = offsets_of(c.sizes), map = some_map(c.num_rows, c.source_rows());
  for (int64_t group = 0; group < c.num_groups(); ++group)
    for (int64_t row = offsets[static_cast<size_t>(group)]; row < offsets[static_cast<size_t>(group) + 1];
         ++row)
      f(group, row, c.mapped ? map[static_cast<size_t>(row)] : row);
}

template <class X, class W>
Doubles loop(const Case& c, const X& x, const W& w) {
  Doubles y(static_cast<size_t>(c.num_rows * c.out_cols()), std::nan(""));
  each_row(c, [&](int64_t group, int64_t row, int64_t source) {
    for (int64_t j = 0; j < c.out_cols(); ++j) {
      double sum = 0;
      for (int64_t p = 0; p < c.in_cols(); ++p)
        sum += static_cast<double>(x[static_cast<size_t>(source * c.in_cols() + p)]) *
               static_cast<double>(
                   w[static_cast<size_t>(group * kN * kK + (c.trans_w ? j * kK + p : p * kK + j))]);
      y[static_cast<size_t>(row * c.out_cols() + j)] = sum;
    }
  });
  return y;
}

/// `ordered`: gets x_in_order, when given.
std::vector<float> run(const Case& c, const std::vector<float>& x, const std::vector<float>& w,
                       std::vector<float>* ordered = nullptr) {
  OpRunner r(c.num_threads);
  const Handle xh = r.tensor("x", {c.source_rows(), c.in_cols()}, x, c.in);
  const Handle map = c.mapped ? r.ints("map", {c.num_rows}, some_map(c.num_rows, c.source_rows())) : Handle{};
  const Handle wh = r.tensor("w", {c.num_groups(), kN, kK}, w, c.in);
  const Handle offsets = r.ints("offsets", {c.num_groups() + 1}, offsets_of(c.sizes));
  const Handle y = r.tensor("y", {c.num_rows, c.out_cols()}, {}, c.out);
  ops::GroupedMatmul args{.x = xh, .x_rows = map, .w = wh, .offsets = offsets, .y = y, .trans_w = c.trans_w};
  if (ordered != nullptr) args.x_in_order = r.tensor("x_in_order", {c.num_rows, c.in_cols()}, {}, c.in);
  if (c.parts.empty())
    ops::grouped_matmul(r.program(), Stream::compute, args);
  else
    args.split = r.ints("split", {c.num_groups()}, splits_of(c));
  for (const Part part : c.parts) {
    args.part = part;
    ops::grouped_matmul(r.program(), Stream::compute, args);
  }
  r.run();
  if (ordered != nullptr) *ordered = r.get(args.x_in_order);
  return r.get(y);
}

/// Rows of the groups agree, rows after them are as they were: NaN.
void expect_rows(const Case& c, const std::vector<float>& y, const Doubles& expected, double bound) {
  const auto used = static_cast<size_t>(c.used() * c.out_cols());
  EXPECT_LE(relative_error({y.begin(), y.begin() + static_cast<int64_t>(used)},
                           floats({expected.begin(), expected.begin() + static_cast<int64_t>(used)})),
            bound);
  for (size_t i = used; i < y.size(); ++i) ASSERT_TRUE(std::isnan(y[i])) << i;
}

const std::vector<std::vector<int32_t>> kSizes = {{4, 4, 4},   {0, 9, 0, 1}, {1, 1, 1, 1},  {0, 0, 0},
                                                  {0, 300, 0}, {260, 0, 17}, {16, 15, 2, 1}};

TEST(GroupedMatmul, MatchesADoubleLoopForAnyGroupSizes) {
  for (const auto& sizes : kSizes)
    for (const bool trans_w : {true, false})
      for (const bool mapped : {false, true}) {
        Case c{.sizes = sizes, .num_rows = 310, .mapped = mapped, .trans_w = trans_w};
        const auto x = randn(c.source_rows() * c.in_cols(), 1), w = randn(c.num_groups() * kN * kK, 2);
        expect_rows(c, run(c, x, w), loop(c, x, w), 1e-6);
        c.num_threads = 2;
        expect_rows(c, run(c, x, w), loop(c, x, w), 1e-6);
      }
}

TEST(GroupedMatmul, DataGradientIsThatOfTheForwardProduct) {
  Case c{.sizes = {2, 0, 1, 3}, .num_rows = 6}, back = c;
  back.trans_w = false;
  const auto x = randn(6 * kK, 1), w = randn(4 * kN * kK, 2), dy = randn(6 * kN, 3);
  const auto dx = gradient([&](const Doubles& v) { return dot(loop(c, v, w), dy); }, x);
  EXPECT_LT(relative_error(run(back, dy, w), dx), 1e-6);
}

TEST(GroupedMatmul, BitsOfARowDoNotDependOnGroupSizesNorOnThreads) {
  for (const bool trans_w : {true, false}) {
    const Case all{.sizes = {300}, .num_rows = 300, .trans_w = trans_w};
    const auto x = randn(300 * all.in_cols(), 1), w = randn(kN * kK, 2);
    const auto expected = run(all, x, w);
    Case cut{.sizes = {1, 2, 0, 3, 15, 16, 263}, .num_rows = 300, .trans_w = trans_w};
    std::vector<float> same;
    for (size_t i = 0; i < cut.sizes.size(); ++i) same.insert(same.end(), w.begin(), w.end());
    EXPECT_EQ(run(cut, x, same), expected);
    cut.num_threads = 2;
    EXPECT_EQ(run(cut, x, same), expected);
  }
}

TEST(GroupedMatmul, RowsInTheOrderOfTheProductAreThoseOfTheMap) {
  for (const auto& parts : {std::vector<Part>{}, {Part::rest, Part::front}})
    for (const DType type : {DType::f32, DType::bf16}) {
      const Case c{.sizes = {4, 0, 290, 3}, .num_rows = 310, .mapped = true, .in = type, .parts = parts};
      const auto x = as_bf16(randn(c.source_rows() * c.in_cols(), 1)), w = randn(4 * kN * kK, 2);
      std::vector<float> ordered;
      run(c, x, w, &ordered);
      each_row(c, [&](int64_t, int64_t row, int64_t source) {
        EXPECT_TRUE(
            std::equal(x.begin() + source * kK, x.begin() + (source + 1) * kK, ordered.begin() + row * kK))
            << row;
      });
      for (auto i = static_cast<size_t>(c.used() * kK); i < ordered.size(); ++i)
        ASSERT_TRUE(std::isnan(ordered[i])) << i;
    }
}

TEST(GroupedMatmul, TwoPartsMakeTheSameBits) {
  for (const auto& sizes : kSizes)
    for (const bool trans_w : {true, false})
      for (const bool mapped : {false, true}) {
        Case c{.sizes = sizes, .num_rows = 310, .mapped = mapped, .trans_w = trans_w};
        const auto x = randn(c.source_rows() * c.in_cols(), 1), w = randn(c.num_groups() * kN * kK, 2);
        const auto whole = run(c, x, w);
        c.parts = {Part::rest, Part::front};
        const auto parts = run(c, x, w);
        const auto used = c.used() * c.out_cols();
        EXPECT_TRUE(std::equal(whole.begin(), whole.begin() + used, parts.begin()));
        for (auto i = static_cast<size_t>(used); i < parts.size(); ++i)
          ASSERT_TRUE(std::isnan(parts[i])) << i;
        // Each makes its own rows and touches none of the other's.
        for (const Part part : {Part::front, Part::rest}) {
          c.parts = {part};
          const auto one = run(c, x, w);
          each_row(c, [&](int64_t group, int64_t row, int64_t) {
            const bool made = (row < splits_of(c)[static_cast<size_t>(group)]) == (part == Part::front);
            const float first = one[static_cast<size_t>(row * c.out_cols())];
            EXPECT_TRUE(made ? first == whole[static_cast<size_t>(row * c.out_cols())] : std::isnan(first))
                << row;
          });
        }
      }
}

TEST(GroupedMatmul, Bf16IsRoundedOnceFromTheFp32Result) {
  for (const bool mapped : {false, true}) {
    Case c{.sizes = {1, 0, 260, 3}, .num_rows = 264, .mapped = mapped};
    const auto x = as_bf16(randn(c.source_rows() * kK, 1)), w = as_bf16(randn(4 * kN * kK, 2));
    const auto exact = run(c, x, w);
    c.in = DType::bf16;
    EXPECT_EQ(run(c, x, w), exact);
    c.out = DType::bf16;
    EXPECT_EQ(run(c, x, w), as_bf16(exact));
  }
}

struct Grads {
  std::vector<float> dy, x, dw;
};

Grads grad_inputs(const Case& c) {
  return {as_bf16(randn(c.source_rows() * kN, 1)), as_bf16(randn(c.source_rows() * kK, 2)),
          randn(c.num_groups() * kN * kK, 3)};
}

/// Both through the map when the case has one.
std::vector<float> run_grad(const Case& c, const Grads& in, bool accumulate = true) {
  OpRunner r(c.num_threads);
  const Handle dy = r.tensor("dy", {c.source_rows(), kN}, in.dy, c.in),
               x = r.tensor("x", {c.source_rows(), kK}, in.x, c.in);
  const Handle map = c.mapped ? r.ints("map", {c.num_rows}, some_map(c.num_rows, c.source_rows())) : Handle{};
  const Handle offsets = r.ints("offsets", {c.num_groups() + 1}, offsets_of(c.sizes));
  const Handle dw = r.tensor("dw", {c.num_groups(), kN, kK}, in.dw);
  ops::grouped_matmul_weight_grad(r.program(), Stream::compute,
                                  {.dy = dy,
                                   .dy_rows = map,
                                   .x = x,
                                   .x_rows = map,
                                   .offsets = offsets,
                                   .dw = dw,
                                   .accumulate = accumulate});
  r.run();
  return r.get(dw);
}

TEST(GroupedMatmulWeightGrad, AddsToWhatIsThereAndLeavesEmptyGroupsAlone) {
  for (const auto& sizes : kSizes)
    for (const bool mapped : {false, true}) {
      Case c{.sizes = sizes, .num_rows = 310, .mapped = mapped};
      const Grads in = grad_inputs(c);
      Doubles expected = doubles(in.dw);
      each_row(c, [&](int64_t group, int64_t, int64_t source) {
        for (int64_t j = 0; j < kN; ++j)
          for (int64_t p = 0; p < kK; ++p)
            expected[static_cast<size_t>((group * kN + j) * kK + p)] +=
                static_cast<double>(in.dy[static_cast<size_t>(source * kN + j)]) *
                static_cast<double>(in.x[static_cast<size_t>(source * kK + p)]);
      });
      const auto dw = run_grad(c, in);
      EXPECT_LT(relative_error(dw, floats(expected)), 1e-6);
      for (size_t group = 0; group < sizes.size(); ++group) {
        if (sizes[group] != 0) continue;
        const auto begin = static_cast<int64_t>(group) * kN * kK;
        EXPECT_TRUE(std::equal(dw.begin() + begin, dw.begin() + begin + kN * kK, in.dw.begin() + begin))
            << group;
      }
      c.num_threads = 2;
      EXPECT_EQ(run_grad(c, in), dw);
      c.in = DType::bf16;
      EXPECT_EQ(run_grad(c, in), dw);
    }
}

TEST(GroupedMatmulWeightGrad, WithoutAccumulateReplacesWhatIsThere) {
  for (const auto& sizes : kSizes) {
    const Case c{.sizes = sizes, .num_rows = 310};
    Grads in = grad_inputs(c);
    in.dw.assign(in.dw.size(), 0);
    const auto expected = run_grad(c, in);
    in.dw.assign(in.dw.size(), std::numeric_limits<float>::quiet_NaN());
    EXPECT_EQ(run_grad(c, in, false), expected);
  }
}

TEST(GroupedMatmulWeightGrad, IsTheGradientOfTheForwardProduct) {
  const Case c{.sizes = {2, 0, 3}, .num_rows = 5};
  Grads in = grad_inputs(c);
  const auto w = in.dw;
  in.dw.assign(in.dw.size(), 0);
  const auto expected = gradient([&](const Doubles& v) { return dot(loop(c, in.x, v), in.dy); }, w);
  EXPECT_LT(relative_error(run_grad(c, in), expected), 1e-6);
}

TEST(GroupedMatmul, CostCountsExpectedRowsAndAllWeights) {
  OpRunner r;
  const Handle x = r.tensor("x", {40, kK}, {}, DType::bf16), w = r.tensor("w", {3, kN, kK}, {}, DType::bf16);
  const Handle y = r.tensor("y", {40, kN}), offsets = r.ints("offsets", {4}),
               dw = r.tensor("dw", {3, kN, kK});
  ops::grouped_matmul(r.program(), Stream::compute,
                      {.x = x, .w = w, .offsets = offsets, .y = y, .expected_rows = 30});
  ops::grouped_matmul_weight_grad(r.program(), Stream::compute,
                                  {.dy = y, .x = x, .offsets = offsets, .dw = dw, .expected_rows = 30});
  const auto& nodes = r.program().nodes();
  EXPECT_EQ(nodes[0].cost.work, Work::grouped_matmul);
  EXPECT_EQ(nodes[0].cost.operations, 2 * 30 * 19 * 23);
  EXPECT_EQ(nodes[0].cost.bytes, 30 * (23 * 2 + 19 * 4) + 3 * 19 * 23 * 2 + 4 * 4);
  EXPECT_EQ(nodes[1].cost.operations, 2 * 30 * 19 * 23);
  EXPECT_EQ(nodes[1].cost.bytes, 30 * (23 * 2 + 19 * 4) + 2 * 3 * 19 * 23 * 4 + 4 * 4);
}

TEST(GroupedMatmul, OffsetsOutsideTheRowsAreABug) {
  const Case c{.sizes = {4, 4}, .num_rows = 7};
  const auto x = randn(7 * kK, 1), w = randn(2 * kN * kK, 2);
  EXPECT_DEATH(run(c, x, w), "group 1: rows 4 to 8 of 7");
}

}  // namespace
}  // namespace moesaic::test
