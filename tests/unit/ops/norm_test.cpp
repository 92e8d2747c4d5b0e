#include "ops/norm/norm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/op_runner.h"

namespace moesaic {
namespace {

using test::OpRunner;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();

float squares(const std::vector<float>& x, int threads = 1) {
  OpRunner r(threads);
  const Handle in = r.tensor("x", {static_cast<int64_t>(x.size())}, x), out = r.tensor("out", {1});
  ops::sum_of_squares(r.program(), Stream::compute, in, out);
  r.run();
  EXPECT_EQ(r.program().nodes()[0].cost.bytes, 4.0 * static_cast<double>(x.size() + 1));
  EXPECT_EQ(r.program().nodes()[0].cost.operations, 2.0 * static_cast<double>(x.size()));
  return r.get(out)[0];
}

TEST(SumOfSquares, MatchesADoubleSumForAnyLength) {
  for (int64_t count : {1, 31, 33, 4095, 4096, 4097, 100001}) {
    const auto x = test::randn(count, 1);
    double sum = 0;
    for (float v : x) sum += double{v} * v;
    EXPECT_NEAR(squares(x), sum, 2e-7 * sum) << count;
  }
}

TEST(SumOfSquares, ALargePartDoesNotSwallowSmallOnes) {
  // 1e8 and then 1000 times 1: FP32 would stay at 1e8.
  std::vector<float> x(1000 * 4096, 1.0f / 64);
  x[0] = 1e4f;
  EXPECT_NEAR(squares(x), 1e8 + 1000, 8);
}

TEST(SumOfSquares, HasTheSameBitsForAnyNumberOfThreads) {
  const auto x = test::randn(50000, 2);
  EXPECT_EQ(squares(x, 1), squares(x, 2));
}

TEST(SumOfSquares, NanAndInfComeThrough) {
  auto x = test::randn(5000, 3);
  x[4500] = kInf;
  EXPECT_EQ(squares(x), kInf);
  x[17] = kNan;
  EXPECT_TRUE(std::isnan(squares(x)));
}

TEST(CountNonfinite, CountsEveryNanAndInf) {
  auto x = test::randn(9000, 4);
  x[0] = kNan;
  x[4096] = -kInf;
  x[8999] = kInf;
  x[5] = std::numeric_limits<float>::max();
  OpRunner r;
  const Handle in = r.tensor("x", {9000}, x), out = r.ints("out", {1});
  ops::count_nonfinite(r.program(), Stream::compute, in, out);
  r.run();
  EXPECT_EQ(r.get_ints(out)[0], 3);
  EXPECT_EQ(r.program().nodes()[0].cost.bytes, 4.0 * 9001);
}

struct Result {
  float norm, clip_scale;
  int32_t ok;
};

struct Step {
  std::vector<float> parts{9, 16};
  std::vector<int32_t> overflow{0, 0, 0};
  int32_t counted = 7;
  float clip = 1;
  bool drop_overflow = false;
};

Result judge(const Step& step) {
  OpRunner r;
  ops::Verdict args{.clip = step.clip, .drop_overflow = step.drop_overflow};
  args.parts = r.tensor("parts", {static_cast<int64_t>(step.parts.size())}, step.parts);
  args.overflow = r.ints("overflow", {static_cast<int64_t>(step.overflow.size())}, step.overflow);
  args.counted = r.ints("counted", {1}, {step.counted});
  args.grad_norm = r.tensor("grad_norm", {1});
  args.clip_scale = r.tensor("clip_scale", {1});
  args.ok = r.ints("ok", {1});
  ops::verdict(r.program(), Stream::compute, args);
  r.run();
  EXPECT_EQ(r.program().nodes()[0].cost.bytes,
            4.0 * static_cast<double>(step.parts.size() + step.overflow.size() + 4));
  return {r.get(args.grad_norm)[0], r.get(args.clip_scale)[0], r.get_ints(args.ok)[0]};
}

TEST(Verdict, ClipsToTheNormOfAllParts) {
  const Result got = judge({});
  EXPECT_FLOAT_EQ(got.norm, 5);
  EXPECT_FLOAT_EQ(got.clip_scale, 0.2f);
  EXPECT_EQ(got.ok, 1);
  EXPECT_EQ(judge({.clip = 0}).clip_scale, 1);
  EXPECT_EQ(judge({.clip = 6}).clip_scale, 1);
  EXPECT_EQ(judge({.parts = {0}}).clip_scale, 1);
}

TEST(Verdict, ANormThatIsNotFiniteStopsTheStep) {
  EXPECT_EQ(judge({.parts = {1, kNan}}).ok, 0);
  EXPECT_EQ(judge({.parts = {kInf, 1}}).ok, 0);
  EXPECT_EQ(judge({.parts = {3e38f, 3e38f}}).ok, 1) << "the sum of parts is FP64";
}

TEST(Verdict, AStepWithoutCountedTokensIsNotDone) {
  EXPECT_EQ(judge({.counted = 0}).ok, 0);
  EXPECT_EQ(judge({.counted = 1}).ok, 1);
}

TEST(Verdict, OverflowStopsTheStepUnlessRowsAreDropped) {
  EXPECT_EQ(judge({.overflow = {0, 0, 900}}).ok, 0);
  EXPECT_EQ(judge({.overflow = {0, 0, 900}, .drop_overflow = true}).ok, 1);
  EXPECT_EQ(judge({.parts = {kNan}, .overflow = {0, 0, 900}, .drop_overflow = true}).ok, 0);
}

}  // namespace
}  // namespace moesaic
