#include "ops/rmsnorm/rmsnorm.h"

#include <gtest/gtest.h>

#include "support/op_runner.h"
#include "support/reference.h"

namespace moesaic::test {
namespace {

constexpr double kEps = 0.01;  // large enough to be seen

/// y of s = x + residual, [rows, width].
template <class X, class G>
Doubles loop(const X& s, const G& gain) {
  const size_t width = gain.size();
  Doubles y(s.size());
  for (size_t row = 0; row < s.size(); row += width) {
    double squares = 0;
    for (size_t i = 0; i < width; ++i)
      squares += static_cast<double>(s[row + i]) * static_cast<double>(s[row + i]);
    const double rstd = 1 / std::sqrt(squares / static_cast<double>(width) + kEps);
    for (size_t i = 0; i < width; ++i)
      y[row + i] = static_cast<double>(s[row + i]) * rstd * static_cast<double>(gain[i]);
  }
  return y;
}

struct Forward {
  std::vector<float> sum, y, rstd;
};

Forward run_forward(int64_t rows, int64_t width, const std::vector<float>& x,
                    const std::vector<float>& residual, const std::vector<float>& gain,
                    DType type = DType::f32, int num_threads = 1) {
  OpRunner r(num_threads);
  const Handle xh = r.tensor("x", {rows, width}, x, type), y = r.tensor("y", {rows, width}, {}, type);
  const Handle residual_h = residual.empty() ? Handle{} : r.tensor("residual", {rows, width}, residual, type);
  const Handle sum = r.tensor("sum", {rows, width}, {}, type), rstd = r.tensor("rstd", {rows});
  const Handle gain_h = r.tensor("gain", {width}, gain, type);
  ops::rmsnorm_forward(r.program(), Stream::compute,
                       {.x = xh,
                        .residual = residual_h,
                        .gain = gain_h,
                        .sum = sum,
                        .y = y,
                        .rstd = rstd,
                        .eps = static_cast<float>(kEps)});
  r.run();
  return {r.get(sum), r.get(y), r.get(rstd)};
}

TEST(RmsNorm, ForwardMatchesADoubleLoop) {
  for (const int64_t width : {1, 7, 16, 33, 128})
    for (const int64_t rows : {1, 5}) {
      const auto x = randn(rows * width, 1), residual = randn(rows * width, 2), gain = randn(width, 3);
      const Forward alone = run_forward(rows, width, x, {}, gain);
      EXPECT_EQ(alone.sum, x);
      EXPECT_LT(relative_error(alone.y, floats(loop(x, gain))), 1e-6) << width;
      Doubles s = doubles(x);
      for (size_t i = 0; i < s.size(); ++i) s[i] += static_cast<double>(residual[i]);
      const Forward both = run_forward(rows, width, x, residual, gain);
      EXPECT_LT(relative_error(both.sum, floats(s)), 1e-6);
      EXPECT_LT(relative_error(both.y, floats(loop(s, gain))), 1e-6) << width;
      EXPECT_NEAR(both.rstd[0] * both.sum[0] * gain[0], both.y[0], 1e-6);
    }
}

TEST(RmsNorm, ForwardNeedsNoOptionalTensor) {
  OpRunner r;
  const auto values = randn(12, 1), gain_values = randn(4, 2);
  const Handle x = r.tensor("x", {3, 4}, values), y = r.tensor("y", {3, 4}),
               gain = r.tensor("gain", {4}, gain_values);
  ops::rmsnorm_forward(r.program(), Stream::compute,
                       {.x = x, .gain = gain, .y = y, .eps = static_cast<float>(kEps)});
  r.run();
  EXPECT_LT(relative_error(r.get(y), floats(loop(values, gain_values))), 1e-6);
}

TEST(RmsNorm, Bf16NormalisesTheRoundedSum) {
  const int64_t rows = 9, width = 33;
  const auto x = as_bf16(randn(rows * width, 1)), residual = as_bf16(randn(rows * width, 2)),
             gain = as_bf16(randn(width, 3));
  const Forward full = run_forward(rows, width, x, residual, gain),
                half = run_forward(rows, width, x, residual, gain, DType::bf16);
  EXPECT_EQ(half.sum, as_bf16(full.sum));
  EXPECT_EQ(half.y, as_bf16(run_forward(rows, width, half.sum, {}, gain).y));
  EXPECT_LT(relative_error(half.y, full.y), 2 * kBf16Bound);
}

struct Backward {
  int64_t rows = 5, width = 9;
  DType type = DType::f32;
  int num_threads = 1;
  bool with_rstd = true, with_add = true;
  enum { apart, over_dy, over_add } where = apart;
};
struct Grads {
  std::vector<float> dx, dgain;
};

std::vector<float> input(const Backward& b, uint64_t seed) {
  return as_bf16(randn(b.rows * b.width, seed));
}

Grads run_backward(const Backward& b) {
  OpRunner r(b.num_threads);
  const Shape shape{b.rows, b.width};
  const auto gain_values = as_bf16(randn(b.width, 3));
  const Handle x = r.tensor("x", shape, input(b, 1), b.type),
               gain = r.tensor("gain", {b.width}, gain_values, b.type);
  const Handle dy = r.tensor("dy", shape, input(b, 4), b.type);
  const Handle add = b.with_add ? r.tensor("add", shape, input(b, 5), b.type) : Handle{};
  const Handle rstd = b.with_rstd ? r.tensor("rstd", {b.rows},
                                             run_forward(b.rows, b.width, input(b, 1), {}, gain_values).rstd)
                                  : Handle{};
  const Handle dx = b.where == Backward::over_dy    ? dy
                    : b.where == Backward::over_add ? add
                                                    : r.tensor("dx", shape, {}, b.type);
  const Handle dgain = r.tensor("dgain", {b.width}, randn(b.width, 6));
  ops::rmsnorm_backward(r.program(), Stream::compute,
                        {.dy = dy,
                         .x = x,
                         .gain = gain,
                         .rstd = rstd,
                         .add = add,
                         .dx = dx,
                         .dgain = dgain,
                         .eps = static_cast<float>(kEps)});
  r.run();
  return {r.get(dx), r.get(dgain)};
}

TEST(RmsNorm, BackwardMatchesFiniteDifferencesAndAccumulates) {
  for (const int64_t width : {1, 9, 32}) {
    const Backward b{.rows = 3, .width = width};
    const auto x = input(b, 1), dy = input(b, 4), add = input(b, 5), gain = as_bf16(randn(width, 3)),
               before = randn(width, 6);
    auto dx = gradient([&](const Doubles& v) { return dot(loop(v, gain), dy); }, x);
    auto dgain = gradient([&](const Doubles& v) { return dot(loop(x, v), dy); }, gain);
    for (size_t i = 0; i < dgain.size(); ++i) dgain[i] += before[i];
    Backward plain = b;
    plain.with_add = false;
    EXPECT_LT(relative_error(run_backward(plain).dx, dx), 2e-6) << width;
    for (size_t i = 0; i < dx.size(); ++i) dx[i] += add[i];
    const Grads grads = run_backward(b);
    EXPECT_LT(relative_error(grads.dx, dx), 2e-6) << width;
    EXPECT_LT(relative_error(grads.dgain, dgain), 2e-6) << width;
  }
}

TEST(RmsNorm, BackwardHasTheSameBitsInPlaceAndWithRstdRecomputed) {
  const Grads grads = run_backward({});
  EXPECT_EQ(run_backward({.where = Backward::over_dy}).dx, grads.dx);
  EXPECT_EQ(run_backward({.where = Backward::over_add}).dx, grads.dx);
  EXPECT_EQ(run_backward({.where = Backward::over_dy}).dgain, grads.dgain);
  EXPECT_EQ(run_backward({.with_rstd = false}).dx, grads.dx);
  EXPECT_EQ(run_backward({.with_rstd = false}).dgain, grads.dgain);
}

TEST(RmsNorm, ThreadsDoNotChangeBits) {
  for (const int64_t rows : {1, 65, 400}) {
    const Grads one = run_backward({.rows = rows}), two = run_backward({.rows = rows, .num_threads = 2});
    EXPECT_EQ(one.dx, two.dx);
    EXPECT_EQ(one.dgain, two.dgain);
    const auto x = randn(rows * 9, 1), gain = randn(9, 2);
    EXPECT_EQ(run_forward(rows, 9, x, {}, gain).y, run_forward(rows, 9, x, {}, gain, DType::f32, 2).y);
  }
}

TEST(RmsNorm, Bf16BackwardRoundsOnce) {
  const Grads full = run_backward({.rows = 70}), half = run_backward({.rows = 70, .type = DType::bf16});
  EXPECT_EQ(half.dx, as_bf16(full.dx));
  EXPECT_EQ(half.dgain, full.dgain);
}

TEST(RmsNorm, CostIsEachTensorOnceAndTheGainsGradientTwice) {
  OpRunner r;
  const Handle x = r.tensor("x", {5, 8}), y = r.tensor("y", {5, 8}), s = r.tensor("s", {5, 8}),
               gain = r.tensor("gain", {8});
  const Handle rstd = r.tensor("rstd", {5}), dgain = r.tensor("dgain", {8});
  ops::rmsnorm_forward(r.program(), Stream::compute,
                       {.x = x, .residual = s, .gain = gain, .sum = s, .y = y, .rstd = rstd});
  ops::rmsnorm_backward(r.program(), Stream::compute,
                        {.dy = y, .x = x, .gain = gain, .rstd = rstd, .dx = s, .dgain = dgain});
  const auto& nodes = r.program().nodes();
  EXPECT_EQ(nodes[0].cost.bytes, 4 * (4 * 5 * 8 + 8 + 5));
  EXPECT_EQ(nodes[1].cost.bytes, 4 * (3 * 5 * 8 + 8 + 5 + 2 * 8));
}

}  // namespace
}  // namespace moesaic::test
