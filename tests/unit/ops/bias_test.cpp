#include "ops/bias/bias.h"

#include <gtest/gtest.h>

#include "ops/head_loss/head_loss.h"
#include "support/op_runner.h"
#include "support/reference.h"

namespace moesaic::test {
namespace {

std::vector<float> run_backward(int64_t rows, int64_t width, int num_threads) {
  OpRunner r(num_threads);
  const Handle dy = r.tensor("dy", {rows, width}, randn(rows * width, 1)),
               d_bias = r.tensor("d_bias", {width}, randn(width, 2));
  ops::bias_backward(r.program(), Stream::compute, dy, d_bias);
  r.run();
  return r.get(d_bias);
}

TEST(Bias, IsAddedToEveryRowAndRoundedOnce) {
  const auto x = as_bf16(randn(6 * 5, 1)), bias = as_bf16(randn(5, 2));
  for (const DType type : {DType::f32, DType::bf16}) {
    OpRunner r;
    const Handle xh = r.tensor("x", {6, 5}, x, type), bias_h = r.tensor("bias", {5}, bias, DType::bf16);
    ops::add_bias(r.program(), Stream::compute, xh, bias_h);
    r.run();
    std::vector<float> want = x;
    for (size_t i = 0; i < want.size(); ++i) want[i] += bias[i % 5];
    EXPECT_EQ(r.get(xh), type == DType::bf16 ? as_bf16(want) : want);
  }
}

TEST(Bias, GradientIsTheSumOfRowsAddedToWhatWasThere) {
  for (const int64_t rows : {1, 64, 65, 200}) {
    const auto dy = randn(rows * 3, 1), before = randn(3, 2);
    Doubles sum = doubles(before);
    for (size_t i = 0; i < dy.size(); ++i) sum[i % 3] += static_cast<double>(dy[i]);
    EXPECT_LT(relative_error(run_backward(rows, 3, 1), floats(sum)), 1e-6) << rows;
    EXPECT_EQ(run_backward(rows, 3, 1), run_backward(rows, 3, 2));
  }
}

struct Head {
  float loss;
  std::vector<float> dx, dw, d_bias;
};

/// x [T, D] and w [V, D], with a bias or without.
Head run_head(int64_t T, int64_t D, int64_t V, int64_t chunk, const std::vector<float>& x,
              const std::vector<float>& w, const std::vector<float>& bias, bool accumulate) {
  OpRunner r;
  std::vector<int32_t> targets;
  for (int64_t t = 0; t < T; ++t) targets.push_back(t % 4 == 1 ? -1 : static_cast<int32_t>(t * 5 % V));
  ops::HeadLoss args{.x = r.tensor("x", {T, D}, x),
                     .w = r.tensor("w", {V, D}, w),
                     .targets = r.ints("targets", {T}, targets),
                     .scale = r.tensor("scale", {1}, {0.125f}),
                     .logits = r.tensor("logits", {chunk, V}),
                     .loss = r.tensor("loss", {1}, {0}),
                     .counted = r.ints("counted", {1}, {0}),
                     .dx = r.tensor("dx", {T, D}),
                     .dw = r.tensor("dw", {V, D}, std::vector<float>(static_cast<size_t>(V * D), 1.0f)),
                     .accumulate = accumulate};
  if (!bias.empty()) {
    args.bias = r.tensor("bias", {V}, bias);
    args.d_bias = r.tensor("d_bias", {V}, std::vector<float>(static_cast<size_t>(V), 1.0f));
  }
  ops::head_loss(r.program(), Stream::compute, args);
  r.run();
  return {r.get(args.loss)[0], r.get(args.dx), r.get(args.dw),
          bias.empty() ? std::vector<float>() : r.get(args.d_bias)};
}

TEST(HeadBias, IsAColumnOfTheHeadThatAlwaysSeesOne) {
  const int64_t T = 7, D = 5, V = 19;
  const auto x = randn(T * D, 1), w = randn(V * D, 2), bias = randn(V, 3);
  std::vector<float> wide_x, wide_w;
  for (int64_t t = 0; t < T; ++t) {
    wide_x.insert(wide_x.end(), x.begin() + t * D, x.begin() + (t + 1) * D);
    wide_x.push_back(1);
  }
  for (int64_t v = 0; v < V; ++v) {
    wide_w.insert(wide_w.end(), w.begin() + v * D, w.begin() + (v + 1) * D);
    wide_w.push_back(bias[static_cast<size_t>(v)]);
  }
  for (const int64_t chunk : {3, 16})
    for (const bool accumulate : {true, false}) {
      const Head wide = run_head(T, D + 1, V, chunk, wide_x, wide_w, {}, accumulate);
      const Head head = run_head(T, D, V, chunk, x, w, bias, accumulate);
      std::vector<float> dx, dw, d_bias;
      for (int64_t t = 0; t < T; ++t)
        dx.insert(dx.end(), wide.dx.begin() + t * (D + 1), wide.dx.begin() + t * (D + 1) + D);
      for (int64_t v = 0; v < V; ++v) {
        dw.insert(dw.end(), wide.dw.begin() + v * (D + 1), wide.dw.begin() + v * (D + 1) + D);
        d_bias.push_back(wide.dw[static_cast<size_t>(v * (D + 1) + D)]);
      }
      EXPECT_NEAR(head.loss, wide.loss, 1e-5);
      EXPECT_LT(relative_error(head.dx, dx), 1e-6);
      EXPECT_LT(relative_error(head.dw, dw), 1e-6);
      EXPECT_LT(relative_error(head.d_bias, d_bias), 1e-6);
    }
}

}  // namespace
}  // namespace moesaic::test
