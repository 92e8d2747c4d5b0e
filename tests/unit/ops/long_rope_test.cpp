// qk_rope with a factor for each frequency and a scale.
#include <gtest/gtest.h>

#include "ops/qk_rope/qk_rope.h"
#include "support/op_runner.h"
#include "support/reference.h"

namespace moesaic::test {
namespace {

constexpr int64_t kRows = 6, kHeads = 2, kKvHeads = 1, kWidth = 6, kRow = (kHeads + 2 * kKvHeads) * kWidth;
constexpr float kTheta = 100;

struct Rope {
  std::vector<double> factors;
  double scale = 1;
};

std::vector<int32_t> positions() {
  return {0, 1, 2, 5, 40, 1000};
}

std::vector<float> forward(const Rope& rope, const std::vector<float>& values) {
  OpRunner r;
  ops::QkRopeForward args{.qkv = r.tensor("qkv", {kRows, kRow}, values),
                          .positions = r.ints("positions", {kRows}, positions()),
                          .out = r.tensor("out", {kRows, kRow}),
                          .num_heads = kHeads,
                          .num_kv_heads = kKvHeads,
                          .head_dim = kWidth,
                          .theta = kTheta};
  args.factors = rope.factors, args.scale = rope.scale;
  ops::qk_rope_forward(r.program(), Stream::compute, args);
  r.run();
  return r.get(args.out);
}

std::vector<float> backward(const Rope& rope, const std::vector<float>& values) {
  OpRunner r;
  ops::QkRopeBackward args{.d_out = r.tensor("d_out", {kRows, kRow}, values),
                           .positions = r.ints("positions", {kRows}, positions()),
                           .d_qkv = r.tensor("d_qkv", {kRows, kRow}),
                           .num_heads = kHeads,
                           .num_kv_heads = kKvHeads,
                           .head_dim = kWidth,
                           .theta = kTheta};
  args.factors = rope.factors, args.scale = rope.scale;
  ops::qk_rope_backward(r.program(), Stream::compute, args);
  r.run();
  return r.get(args.d_qkv);
}

TEST(LongRope, DividesEachFrequencyByItsFactorAndScalesQueriesAndKeys) {
  const Rope rope{{1, 1.5, 8}, 1.25};
  const auto x = randn(kRows * kRow, 1);
  Doubles want = doubles(x);
  for (int64_t t = 0; t < kRows; ++t)
    for (int64_t h = 0; h < kHeads + kKvHeads; ++h)
      for (int64_t i = 0; i < kWidth / 2; ++i) {
        const auto at = static_cast<size_t>(t * kRow + h * kWidth + i), other = at + kWidth / 2;
        const double angle = positions()[static_cast<size_t>(t)] *
                             std::pow(kTheta, -2.0 * static_cast<double>(i) / kWidth) /
                             rope.factors[static_cast<size_t>(i)];
        const double a = want[at], b = want[other];
        want[at] = rope.scale * (a * std::cos(angle) - b * std::sin(angle));
        want[other] = rope.scale * (b * std::cos(angle) + a * std::sin(angle));
      }
  EXPECT_LT(relative_error(forward(rope, x), floats(want)), 1e-6);
  // Plain ones before and after: the table that is kept from call to call is made again.
  EXPECT_EQ(forward({}, x), forward({{1, 1, 1}, 1}, x));
  EXPECT_NE(forward({}, x), forward(rope, x));
}

TEST(LongRope, BackwardIsTheTransposeOfForward) {
  const Rope rope{{1, 1.5, 8}, 1.25};
  const auto x = randn(kRows * kRow, 1), d = randn(kRows * kRow, 2);
  EXPECT_NEAR(dot(doubles(forward(rope, x)), d), dot(doubles(backward(rope, d)), x), 1e-4);
  EXPECT_GT(std::abs(dot(doubles(forward({}, x)), d) - dot(doubles(backward(rope, d)), x)), 1e-2);
}

}  // namespace
}  // namespace moesaic::test
