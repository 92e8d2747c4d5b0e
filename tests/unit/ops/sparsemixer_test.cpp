// The router's sparsemixer score.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "ops/router/router.h"
#include "support/op_runner.h"
#include "support/reference.h"

namespace moesaic::test {
namespace {

using testing::ElementsAre;

constexpr int64_t kExperts = 8;

RouterConfig settings(double eps, double scale = 1) {
  RouterConfig config;
  config.score = ScoreFunction::sparsemixer;
  config.renormalize = false;
  config.sparsemixer_eps = eps;
  config.weight_scale = scale;
  return config;
}

struct Routed {
  std::vector<int32_t> indices;
  std::vector<float> weights, probs;
};

Routed route(const RouterConfig& config, const std::vector<float>& logits, int64_t E = kExperts) {
  const auto T = static_cast<int64_t>(logits.size()) / E;
  OpRunner r;
  ops::RouterForward args{.config = config};
  args.logits = r.tensor("logits", {T, E}, logits);
  args.indices = r.ints("indices", {T, 2});
  args.weights = r.tensor("weights", {T, 2});
  args.probs = r.tensor("probs", {T, E});
  ops::router_forward(r.program(), Stream::compute, args);
  r.run();
  return {r.get_ints(args.indices), r.get(args.weights), r.get(args.probs)};
}

/// One token in FP64: which experts and, of `at`, their weights. Who is near is decided at `logits`, as for a derivative.
std::pair<std::vector<int32_t>, Doubles> reference(const Doubles& logits, const Doubles& at, double eps) {
  std::vector<int32_t> chosen;
  Doubles weights;
  for (int k = 0; k < 2; ++k) {
    size_t best = logits.size();
    for (size_t x = 0; x < logits.size(); ++x) {
      const bool taken = !chosen.empty() && chosen[0] == static_cast<int32_t>(x);
      if (!taken && (best == logits.size() || logits[x] > logits[best])) best = x;
    }
    double sum = 0;
    for (size_t x = 0; x < logits.size(); ++x) {
      const bool taken = !chosen.empty() && chosen[0] == static_cast<int32_t>(x);
      const bool far = (logits[best] - logits[x]) / std::max(std::abs(logits[x]), logits[best]) > 2 * eps;
      if (!taken && !far) sum += std::exp(at[x]);
    }
    weights.push_back(std::exp(at[best]) / sum);
    chosen.push_back(static_cast<int32_t>(best));
  }
  return {chosen, weights};
}

Doubles token(const std::vector<float>& all, int64_t t) {
  return {all.begin() + t * kExperts, all.begin() + (t + 1) * kExperts};
}

TEST(SparseMixer, WeighsByASoftmaxOverWhatIsNear) {
  // Near 4: what is at most 2 * 0.1 of 4 below it, so 3.5; near 3.5, with 4 taken: 3.
  const Routed got = route(settings(0.1), {1, 3.5f, 4, 3}, 4);
  EXPECT_THAT(got.indices, ElementsAre(2, 1));
  EXPECT_NEAR(got.weights[0], 1 / (1 + std::exp(-0.5)), 1e-6);
  EXPECT_NEAR(got.weights[1], 1 / (1 + std::exp(-0.5)), 1e-6);
  EXPECT_NEAR(got.probs[0], std::exp(1) / (std::exp(1) + std::exp(3.5) + std::exp(4) + std::exp(3)), 1e-6);
  EXPECT_THAT(route(settings(0), {1, 3.5f, 4, 3}, 4).weights, ElementsAre(1, 1));
}

TEST(SparseMixer, ForwardMatchesADoubleReference) {
  const int64_t T = 60;
  const auto logits = randn(T * kExperts, 1, 2);
  for (const double eps : {0.01, 0.3}) {
    const Routed got = route(settings(eps, 2.5), logits);
    std::vector<float> weights;
    for (int64_t t = 0; t < T; ++t) {
      const auto [chosen, want] = reference(token(logits, t), token(logits, t), eps);
      EXPECT_EQ(got.indices[static_cast<size_t>(2 * t)], chosen[0]);
      EXPECT_EQ(got.indices[static_cast<size_t>(2 * t + 1)], chosen[1]);
      for (const double w : want) weights.push_back(static_cast<float>(2.5 * w));
    }
    EXPECT_LT(relative_error(got.weights, weights), 1e-6) << eps;
  }
}

TEST(SparseMixer, BackwardMatchesFiniteDifferences) {
  const int64_t T = 20;
  const double eps = 0.3, scale = 2.5;
  const auto logits = randn(T * kExperts, 2, 2), d_weights = randn(T * 2, 3), balance = randn(kExperts, 4);
  const Routed forward = route(settings(eps, scale), logits);
  OpRunner r;
  ops::RouterBackward args{.config = settings(eps, scale)};
  args.logits = r.tensor("logits", {T, kExperts}, logits);
  args.indices = r.ints("indices", {T, 2}, forward.indices);
  args.weights = r.tensor("weights", {T, 2}, forward.weights);
  args.probs = r.tensor("probs", {T, kExperts}, forward.probs);
  args.d_weights = r.tensor("d_weights", {T, 2}, d_weights);
  args.balance_grad = r.tensor("balance_grad", {1, kExperts}, balance);
  args.scope = r.ints("scope", {T}, std::vector<int32_t>(static_cast<size_t>(T), 0));
  args.d_logits = r.tensor("d_logits", {T, kExperts});
  ops::router_backward(r.program(), Stream::compute, args);
  r.run();
  std::vector<float> want;
  for (int64_t t = 0; t < T; ++t) {
    const Doubles here = token(logits, t);
    const auto loss = [&](const Doubles& at) {
      const auto weights = reference(here, at, eps).second;
      double sum = 0, exps = 0;
      for (const double x : at) exps += std::exp(x);
      for (size_t x = 0; x < at.size(); ++x) sum += balance[x] * std::exp(at[x]) / exps;
      for (size_t k = 0; k < 2; ++k) sum += scale * weights[k] * d_weights[static_cast<size_t>(2 * t) + k];
      return sum;
    };
    const auto d = gradient(loss, floats(here));
    want.insert(want.end(), d.begin(), d.end());
  }
  EXPECT_LT(relative_error(r.get(args.d_logits), want), 1e-5);
}

TEST(SparseMixer, NanAndInfNeverGiveAnInvalidOrARepeatedExpert) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  for (const auto& logits :
       {std::vector<float>(8, nan), std::vector<float>{nan, 1, 2, 3, 4, 5, 6, 7}, std::vector<float>(8, inf),
        std::vector<float>(8, -inf), std::vector<float>(8, 0.0f),
        std::vector<float>{inf, -inf, nan, 0, nan, inf, 1, nan}}) {
    const Routed got = route(settings(0.1), logits);
    EXPECT_NE(got.indices[0], got.indices[1]);
    for (const int32_t x : got.indices) EXPECT_TRUE(x >= 0 && x < 8) << x;
  }
  EXPECT_THAT(route(settings(0.1), {nan, 1, 2, 3, 4, 5, 6, 7}).indices, ElementsAre(7, 6));
}

}  // namespace
}  // namespace moesaic::test
