#include "ops/swiglu/swiglu.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/op_runner.h"
#include "support/reference.h"

namespace moesaic::test {
namespace {

struct Case {
  int64_t rows = 6, width = 11, used = 6;  // rows from `used` on must stay untouched
  bool weighted = true, with_offsets = true, with_y = true;
  DType type = DType::f32;
  int num_threads = 1;

  std::vector<float> h() const { return as_bf16(randn(rows * 2 * width, 1, 2)); }
  std::vector<float> dy() const { return as_bf16(randn(rows * width, 2)); }
  std::vector<float> weights() const { return randn(2 * rows, 3); }
  int32_t slot(int64_t row) const { return static_cast<int32_t>(2 * rows - 1 - 2 * row); }
  std::vector<int32_t> slots() const {
    std::vector<int32_t> s;
    for (int64_t row = 0; row < rows; ++row) s.push_back(slot(row));
    return s;
  }
};

template <class H, class W>
Doubles loop(const Case& c, const H& h, const W& weights) {
  Doubles y(static_cast<size_t>(c.rows * c.width));
  for (int64_t r = 0; r < c.used; ++r)
    for (int64_t i = 0; i < c.width; ++i) {
      const auto a = static_cast<double>(h[static_cast<size_t>(r * 2 * c.width + i)]);
      const auto b = static_cast<double>(h[static_cast<size_t>((r * 2 + 1) * c.width + i)]);
      y[static_cast<size_t>(r * c.width + i)] =
          a / (1 + std::exp(-a)) * b *
          (c.weighted ? static_cast<double>(weights[static_cast<size_t>(c.slot(r))]) : 1);
    }
  return y;
}

struct Result {
  std::vector<float> y, dh, d_weights, y_again;
};

Result run(const Case& c, const std::vector<float>& values) {
  OpRunner r(c.num_threads);
  const Handle h = r.tensor("h", {c.rows, 2 * c.width}, values, c.type),
               y = r.tensor("y", {c.rows, c.width}, {}, c.type);
  const Handle weights = c.weighted ? r.tensor("weights", {c.rows, 2}, c.weights()) : Handle{};
  const Handle slots = c.weighted ? r.ints("slots", {c.rows}, c.slots()) : Handle{};
  const Handle offsets =
      c.with_offsets ? r.ints("offsets", {3}, {0, 1, static_cast<int32_t>(c.used)}) : Handle{};
  const Handle dy = r.tensor("dy", {c.rows, c.width}, c.dy(), c.type),
               dh = r.tensor("dh", {c.rows, 2 * c.width}, {}, c.type);
  const Handle d_weights = c.weighted ? r.tensor("d_weights", {c.rows, 2}) : Handle{};
  const Handle again = c.with_y ? r.tensor("again", {c.rows, c.width}, {}, c.type) : Handle{};
  ops::swiglu_forward(r.program(), Stream::compute,
                      {.h = h, .weights = weights, .slots = slots, .offsets = offsets, .y = y});
  ops::swiglu_backward(r.program(), Stream::compute,
                       {.dy = dy,
                        .h = h,
                        .weights = weights,
                        .slots = slots,
                        .offsets = offsets,
                        .dh = dh,
                        .d_weights = d_weights,
                        .y = again});
  r.run();
  return {r.get(y), r.get(dh), d_weights ? r.get(d_weights) : std::vector<float>{},
          again ? r.get(again) : std::vector<float>{}};
}

/// The first `count` values agree and the rest is NaN.
void expect_start(const std::vector<float>& actual, const std::vector<float>& expected, int64_t count,
                  double bound) {
  EXPECT_LT(
      relative_error({actual.begin(), actual.begin() + count}, {expected.begin(), expected.begin() + count}),
      bound);
  for (size_t i = static_cast<size_t>(count); i < actual.size(); ++i) ASSERT_TRUE(std::isnan(actual[i])) << i;
}

TEST(Swiglu, ForwardAndBackwardMatchDoubleLoopAndFiniteDifferences) {
  for (const bool weighted : {true, false})
    for (const int64_t width : {1, 11, 32})
      for (const int64_t used : {0, 1, 4, 6}) {
        const Case c{.width = width, .used = used, .weighted = weighted};
        const Result result = run(c, c.h());
        expect_start(result.y, floats(loop(c, c.h(), c.weights())), used * width, 1e-6);
        const auto dh =
            gradient([&](const Doubles& v) { return dot(loop(c, v, c.weights()), c.dy()); }, c.h());
        expect_start(result.dh, dh, used * 2 * width, 1e-6);
        expect_start(result.y_again, result.y, used * width, 1e-6);
        if (!weighted) continue;
        const auto d_weights =
            gradient([&](const Doubles& v) { return dot(loop(c, c.h(), v), c.dy()); }, c.weights());
        EXPECT_LT(relative_error(result.d_weights, d_weights), 1e-6);
        for (size_t i = 0; i < d_weights.size(); ++i) {
          if (d_weights[i] == 0) {
            EXPECT_EQ(result.d_weights[i], 0) << i;
          }
        }
      }
}

TEST(Swiglu, TheBackwardRebuildsTheForwardsBits) {
  for (const DType type : {DType::f32, DType::bf16})
    for (const bool weighted : {true, false})
      for (const int64_t width : {1, 7, 16, 33, 96}) {
        const Case c{.rows = 60, .width = width, .used = 60, .weighted = weighted, .type = type};
        const Result result = run(c, c.h());
        EXPECT_EQ(result.y_again, result.y) << "width " << width;
      }
}

TEST(Swiglu, WithoutOffsetsAllRowsAreWritten) {
  const Case c{.with_offsets = false, .with_y = false};
  const Result result = run(c, c.h());
  EXPECT_LT(relative_error(result.y, floats(loop(c, c.h(), c.weights()))), 1e-6);
  EXPECT_LT(relative_error(result.dh, run(Case{}, c.h()).dh), 1e-9);
}

TEST(Swiglu, LargeValuesStayFinite) {
  const Case c{.rows = 1, .width = 6, .used = 1, .weighted = false};
  const Result result = run(c, {-1e4f, -90, -88, 88, 90, 1e4f, 1, 1, 1, 1, 1, 1});
  EXPECT_LT(relative_error(result.y, {0, 0, 0, 88, 90, 1e4f}), 1e-6);
  for (float d : result.dh) EXPECT_TRUE(std::isfinite(d));
}

TEST(Swiglu, ThreadsDoNotChangeBits) {
  const Case c{.rows = 67, .width = 37, .used = 60};
  Case two = c;
  two.num_threads = 2;
  const Result a = run(c, c.h()), b = run(two, c.h());
  EXPECT_EQ(std::vector<float>(a.y.begin(), a.y.begin() + 60 * 37),
            std::vector<float>(b.y.begin(), b.y.begin() + 60 * 37));
  EXPECT_EQ(std::vector<float>(a.dh.begin(), a.dh.begin() + 60 * 74),
            std::vector<float>(b.dh.begin(), b.dh.begin() + 60 * 74));
  EXPECT_EQ(a.d_weights, b.d_weights);
}

TEST(Swiglu, Bf16RoundsOnceFromTheFp32Result) {
  const Case c{};
  Case half = c;
  half.type = DType::bf16;
  const Result a = run(c, c.h()), b = run(half, c.h());
  EXPECT_LE(relative_error(b.y, a.y), kBf16Bound);
  EXPECT_LE(relative_error(b.dh, a.dh), kBf16Bound);
  EXPECT_LE(relative_error(b.y_again, a.y_again), kBf16Bound);
  EXPECT_LT(relative_error(b.d_weights, a.d_weights), 1e-6);
}

TEST(Swiglu, CostCountsExpectedRows) {
  OpRunner r;
  const Handle h = r.tensor("h", {9, 16}, {}, DType::bf16), y = r.tensor("y", {9, 8}, {}, DType::bf16);
  const Handle dh = r.tensor("dh", {9, 16}, {}, DType::bf16),
               again = r.tensor("again", {9, 8}, {}, DType::bf16);
  ops::swiglu_forward(r.program(), Stream::compute, {.h = h, .y = y, .expected_rows = 5});
  ops::swiglu_backward(r.program(), Stream::compute,
                       {.dy = y, .h = h, .dh = dh, .y = again, .expected_rows = 5});
  const auto& nodes = r.program().nodes();
  EXPECT_EQ(nodes[0].cost.operations, 5 * 5 * 8);
  EXPECT_EQ(nodes[0].cost.bytes, 5 * 2 * (16 + 8));
  EXPECT_EQ(nodes[1].cost.operations, 12 * 5 * 8);
  EXPECT_EQ(nodes[1].cost.bytes, 5 * 2 * (8 + 16 + 16 + 8));
}

}  // namespace
}  // namespace moesaic::test
