#include "ops/head_loss/head_loss.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "support/op_runner.h"
#include "support/reference.h"

namespace moesaic::test {
namespace {

struct Case {
  int64_t num_tokens = 7, width = 5, num_logits = 19, chunk = 3;
  bool gradients = true, with_token_loss = true, none_counted = false;
  DType type = DType::f32;
  int num_threads = 1;
  float size = 1;

  std::vector<float> x() const { return as_bf16(randn(num_tokens * width, 1, size)); }
  std::vector<float> w() const { return as_bf16(randn(num_logits * width, 2)); }
  std::vector<int32_t> targets() const {
    std::vector<int32_t> t;
    for (int64_t i = 0; i < num_tokens; ++i)
      t.push_back(none_counted || i % 4 == 1 ? -1 : static_cast<int32_t>(i * 5 % num_logits));
    return t;
  }
};

constexpr float kScale = 0.125f;

/// The loss of each token.
template <class X, class W>
Doubles loop(const Case& c, const X& x, const W& w) {
  Doubles losses;
  for (size_t t = 0; t < static_cast<size_t>(c.num_tokens); ++t) {
    Doubles logits(static_cast<size_t>(c.num_logits));
    for (size_t v = 0; v < logits.size(); ++v)
      for (size_t i = 0; i < static_cast<size_t>(c.width); ++i)
        logits[v] += static_cast<double>(x[t * static_cast<size_t>(c.width) + i]) *
                     static_cast<double>(w[v * static_cast<size_t>(c.width) + i]);
    const double top = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (double logit : logits) sum += std::exp(logit - top);
    const int32_t target = c.targets()[t];
    losses.push_back(target < 0 ? 0 : std::log(sum) + top - logits[static_cast<size_t>(target)]);
  }
  return losses;
}

double sum_of(const Doubles& v) {
  double sum = 0;
  for (double x : v) sum += x;
  return sum;
}

struct Result {
  float loss;
  int32_t counted;
  std::vector<float> token_loss, dx, dw;
};

Result run(const Case& c, bool accumulate = true, std::vector<float> old_dw = {}) {
  OpRunner r(c.num_threads);
  if (old_dw.empty()) old_dw = randn(c.num_logits * c.width, 3);
  ops::HeadLoss args{.x = r.tensor("x", {c.num_tokens, c.width}, c.x(), c.type),
                     .w = r.tensor("w", {c.num_logits, c.width}, c.w(), c.type),
                     .targets = r.ints("targets", {c.num_tokens}, c.targets()),
                     .logits = r.tensor("logits", {c.chunk, c.num_logits}),
                     .loss = r.tensor("loss", {1}, {10}),
                     .counted = r.ints("counted", {1}, {100})};
  if (c.with_token_loss) args.token_loss = r.tensor("token_loss", {c.num_tokens});
  if (c.gradients) {
    args.scale = r.tensor("scale", {1}, {kScale});
    args.dx = r.tensor("dx", {c.num_tokens, c.width}, {}, c.type);
    args.dw = r.tensor("dw", {c.num_logits, c.width}, old_dw);
    args.accumulate = accumulate;
  }
  ops::head_loss(r.program(), Stream::compute, args);
  r.run();
  const auto read = [&](Handle h) { return h ? r.get(h) : std::vector<float>{}; };
  return {r.get(args.loss)[0], r.get_ints(args.counted)[0], read(args.token_loss), read(args.dx),
          read(args.dw)};
}

TEST(HeadLoss, WithoutAccumulateReplacesTheWeightGradient) {
  for (const int64_t chunk : {3, 16}) {
    const Case c{.num_logits = 19, .chunk = chunk};
    const auto filled = [&](float value) {
      return std::vector<float>(static_cast<size_t>(19 * c.width), value);
    };
    EXPECT_EQ(run(c, false, filled(std::numeric_limits<float>::quiet_NaN())).dw, run(c, true, filled(0)).dw);
  }
}

TEST(HeadLoss, LossAndGradientsMatchDoubleLoopAndFiniteDifferences) {
  for (const int64_t chunk : {1, 3, 7, 16})
    for (const int64_t num_logits : {2, 19, 48}) {
      const Case c{.num_logits = num_logits, .chunk = chunk};
      const Result result = run(c);
      const Doubles losses = loop(c, c.x(), c.w());
      EXPECT_LT(relative_error(result.token_loss, floats(losses)), 1e-6);
      EXPECT_NEAR(result.loss, 10 + sum_of(losses), 1e-5);
      EXPECT_EQ(result.counted, 100 + 5);
      const auto dx = gradient([&](const Doubles& v) { return kScale * sum_of(loop(c, v, c.w())); }, c.x());
      auto dw = gradient([&](const Doubles& v) { return kScale * sum_of(loop(c, c.x(), v)); }, c.w());
      for (size_t i = 0; i < dw.size(); ++i) dw[i] += randn(num_logits * c.width, 3)[i];
      EXPECT_LT(relative_error(result.dx, dx), 2e-6) << chunk << " " << num_logits;
      EXPECT_LT(relative_error(result.dw, dw), 2e-6) << chunk << " " << num_logits;
      for (int64_t t = 0; t < c.num_tokens; ++t) {
        if (c.targets()[static_cast<size_t>(t)] >= 0) continue;
        for (int64_t i = 0; i < c.width; ++i) EXPECT_EQ(result.dx[static_cast<size_t>(t * c.width + i)], 0);
      }
    }
}

TEST(HeadLoss, WithoutGradientsTheLossIsTheSame) {
  const Result full = run({}), loss_only = run({.gradients = false, .with_token_loss = false});
  EXPECT_NEAR(full.loss, loss_only.loss, 1e-5);
  EXPECT_EQ(full.counted, loss_only.counted);
}

TEST(HeadLoss, NothingCountedAddsNothing) {
  const Result result = run({.none_counted = true});
  EXPECT_EQ(result.loss, 10);
  EXPECT_EQ(result.counted, 100);
  EXPECT_EQ(result.dx, std::vector<float>(35, 0.0f));
  EXPECT_EQ(result.dw, randn(19 * 5, 3));
}

TEST(HeadLoss, LargeLogitsStayFinite) {
  const Case c{.size = 1000};
  const Result result = run(c);
  EXPECT_LT(relative_error(result.token_loss, floats(loop(c, c.x(), c.w()))), 1e-5);
  for (float d : result.dx) EXPECT_TRUE(std::isfinite(d));
}

TEST(HeadLoss, ThreadsDoNotChangeBits) {
  const Case c{.num_tokens = 90, .width = 37, .num_logits = 131, .chunk = 64};
  Case two = c;
  two.num_threads = 2;
  const Result a = run(c), b = run(two);
  EXPECT_EQ(a.loss, b.loss);
  EXPECT_EQ(a.dx, b.dx);
  EXPECT_EQ(a.dw, b.dw);
}

TEST(HeadLoss, Bf16RoundsTheLogitsGradientAndTheResults) {
  const Case c{.num_tokens = 40, .chunk = 16};
  Case half = c;
  half.type = DType::bf16;
  const Result a = run(c), b = run(half);
  EXPECT_EQ(a.token_loss, b.token_loss);
  EXPECT_NE(a.dw, b.dw);
  EXPECT_LT(relative_error(b.dw, a.dw), kBf16Bound);
  EXPECT_LT(relative_error(b.dx, a.dx), 2 * kBf16Bound);
}

TEST(HeadLoss, CostIsThreeProductsWithGradientsAndOneWithout) {
  OpRunner r;
  const Handle x = r.tensor("x", {6, 5}), w = r.tensor("w", {9, 5}), targets = r.ints("targets", {6});
  const Handle logits = r.tensor("logits", {2, 9}), loss = r.tensor("loss", {1}),
               counted = r.ints("counted", {1});
  const Handle dx = r.tensor("dx", {6, 5}), dw = r.tensor("dw", {9, 5}), scale = r.tensor("scale", {1});
  ops::head_loss(r.program(), Stream::compute,
                 {.x = x, .w = w, .targets = targets, .logits = logits, .loss = loss, .counted = counted});
  ops::head_loss(r.program(), Stream::compute,
                 {.x = x,
                  .w = w,
                  .targets = targets,
                  .scale = scale,
                  .logits = logits,
                  .loss = loss,
                  .counted = counted,
                  .dx = dx,
                  .dw = dw});
  const auto& nodes = r.program().nodes();
  EXPECT_EQ(nodes[0].cost.operations, 2 * 6 * 9 * 5);
  EXPECT_EQ(nodes[0].cost.bytes, 4 * (6 * 5 + 9 * 5 + 6 + 2 * 2));
  EXPECT_EQ(nodes[1].cost.operations, 6 * 6 * 9 * 5);
  EXPECT_EQ(nodes[1].cost.bytes, 4 * (2 * 6 * 5 + 3 * 9 * 5 + 6 + 2 * 2 + 1));
}

}  // namespace
}  // namespace moesaic::test
