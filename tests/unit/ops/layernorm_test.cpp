// rmsnorm with a bias: LayerNorm.
#include <gtest/gtest.h>

#include "ops/rmsnorm/rmsnorm.h"
#include "support/op_runner.h"
#include "support/reference.h"

namespace moesaic::test {
namespace {

constexpr double kEps = 0.01;  // large enough to be seen
constexpr int64_t kRows = 5, kWidth = 9;

Doubles loop(const Doubles& s, const Doubles& gain, const Doubles& bias) {
  const size_t width = gain.size();
  Doubles y(s.size());
  for (size_t row = 0; row < s.size(); row += width) {
    double mean = 0, squares = 0;
    for (size_t i = 0; i < width; ++i) mean += s[row + i] / static_cast<double>(width);
    for (size_t i = 0; i < width; ++i) squares += (s[row + i] - mean) * (s[row + i] - mean);
    const double rstd = 1 / std::sqrt(squares / static_cast<double>(width) + kEps);
    for (size_t i = 0; i < width; ++i) y[row + i] = (s[row + i] - mean) * rstd * gain[i] + bias[i];
  }
  return y;
}

struct Values {
  std::vector<float> x = as_bf16(randn(kRows * kWidth, 1)), residual = as_bf16(randn(kRows * kWidth, 2)),
                     gain = as_bf16(randn(kWidth, 3)), bias = as_bf16(randn(kWidth, 4)),
                     dy = as_bf16(randn(kRows * kWidth, 5)), add = as_bf16(randn(kRows * kWidth, 6));
};

struct Forward {
  std::vector<float> sum, y, rstd;
};

Forward run_forward(DType type = DType::f32) {
  const Values v;
  OpRunner r;
  const Shape shape{kRows, kWidth};
  ops::RmsNormForward args{.x = r.tensor("x", shape, v.x, type),
                           .residual = r.tensor("residual", shape, v.residual, type),
                           .gain = r.tensor("gain", {kWidth}, v.gain, type),
                           .sum = r.tensor("sum", shape, {}, type),
                           .y = r.tensor("y", shape, {}, type),
                           .rstd = r.tensor("rstd", {kRows}),
                           .eps = static_cast<float>(kEps)};
  args.bias = r.tensor("bias", {kWidth}, v.bias, type);
  ops::rmsnorm_forward(r.program(), Stream::compute, args);
  r.run();
  return {r.get(args.sum), r.get(args.y), r.get(args.rstd)};
}

struct Grads {
  std::vector<float> dx, dgain, d_bias;
};

/// Of x alone, without a residual.
Grads run_backward(bool with_rstd, DType type = DType::f32) {
  const Values v;
  OpRunner r;
  const Shape shape{kRows, kWidth};
  ops::RmsNormForward forward{.x = r.tensor("x", shape, v.x, type),
                              .gain = r.tensor("gain", {kWidth}, v.gain, type),
                              .y = r.tensor("y", shape, {}, type),
                              .rstd = r.tensor("rstd", {kRows}),
                              .eps = static_cast<float>(kEps)};
  forward.bias = r.tensor("bias", {kWidth}, v.bias, type);
  ops::rmsnorm_forward(r.program(), Stream::compute, forward);
  ops::RmsNormBackward args{.dy = r.tensor("dy", shape, v.dy, type),
                            .x = forward.x,
                            .gain = forward.gain,
                            .rstd = with_rstd ? forward.rstd : Handle{},
                            .add = r.tensor("add", shape, v.add, type),
                            .dx = r.tensor("dx", shape, {}, type),
                            .dgain = r.tensor("dgain", {kWidth}, randn(kWidth, 7)),
                            .eps = static_cast<float>(kEps)};
  args.d_bias = r.tensor("d_bias", {kWidth}, randn(kWidth, 8));
  ops::rmsnorm_backward(r.program(), Stream::compute, args);
  r.run();
  return {r.get(args.dx), r.get(args.dgain), r.get(args.d_bias)};
}

TEST(LayerNorm, ForwardMatchesADoubleLoop) {
  const Values v;
  Doubles s = doubles(v.x);
  for (size_t i = 0; i < s.size(); ++i) s[i] += static_cast<double>(v.residual[i]);
  const Forward f = run_forward();
  EXPECT_LT(relative_error(f.sum, floats(s)), 1e-6);
  EXPECT_LT(relative_error(f.y, floats(loop(s, doubles(v.gain), doubles(v.bias)))), 1e-6);
  EXPECT_LT(relative_error(run_forward(DType::bf16).y, f.y), 2 * kBf16Bound);
}

TEST(LayerNorm, BackwardMatchesFiniteDifferencesAndAccumulates) {
  const Values v;
  const Doubles x = doubles(v.x), gain = doubles(v.gain), bias = doubles(v.bias);
  auto dx = gradient([&](const Doubles& at) { return dot(loop(at, gain, bias), v.dy); }, v.x);
  auto dgain = gradient([&](const Doubles& at) { return dot(loop(x, at, bias), v.dy); }, v.gain);
  auto d_bias = gradient([&](const Doubles& at) { return dot(loop(x, gain, at), v.dy); }, v.bias);
  for (size_t i = 0; i < dx.size(); ++i) dx[i] += v.add[i];
  for (size_t i = 0; i < dgain.size(); ++i) dgain[i] += randn(kWidth, 7)[i], d_bias[i] += randn(kWidth, 8)[i];
  for (const bool with_rstd : {true, false}) {
    const Grads grads = run_backward(with_rstd);
    EXPECT_LT(relative_error(grads.dx, dx), 2e-6);
    EXPECT_LT(relative_error(grads.dgain, dgain), 2e-6);
    EXPECT_LT(relative_error(grads.d_bias, d_bias), 2e-6);
  }
}

TEST(LayerNorm, Bf16BackwardRoundsOnce) {
  const Grads half = run_backward(false, DType::bf16), full = run_backward(false);
  EXPECT_EQ(half.dx, as_bf16(full.dx));
  EXPECT_EQ(half.d_bias, full.d_bias);
}

}  // namespace
}  // namespace moesaic::test
