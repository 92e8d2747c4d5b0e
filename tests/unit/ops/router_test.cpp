#include "ops/router/router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "support/op_runner.h"

namespace moesaic {
namespace {

using test::OpRunner;
using testing::Each;
using testing::ElementsAre;

struct Routed {
  std::vector<int32_t> indices;
  std::vector<float> weights, probs, lse;
};

Routed route(const RouterConfig& config, int64_t E, int64_t K, const std::vector<float>& logits,
             const std::vector<float>& bias = {}) {
  const auto T = static_cast<int64_t>(logits.size()) / E;
  OpRunner r;
  ops::RouterForward args{.config = config};
  args.logits = r.tensor("logits", {T, E}, logits);
  if (!bias.empty()) args.bias = r.tensor("bias", {E}, bias);
  args.indices = r.ints("indices", {T, K});
  args.weights = r.tensor("weights", {T, K});
  args.probs = r.tensor("probs", {T, E});
  args.lse = r.tensor("lse", {T});
  ops::router_forward(r.program(), Stream::compute, args);
  r.run();
  return {r.get_ints(args.indices), r.get(args.weights), r.get(args.probs), r.get(args.lse)};
}

/// One token in FP64, its chosen experts given: weights, probs and lse as the contract defines them.
struct Reference {
  std::vector<double> score, weights, probs;
  double lse = 0;
};

Reference reference(const RouterConfig& config, const std::vector<double>& logits,
                    const std::vector<int32_t>& chosen) {
  Reference r;
  double sum_exp = 0, sum_score = 0, sum_chosen = 0;
  for (double x : logits) sum_exp += std::exp(x);
  r.lse = std::log(sum_exp);
  for (double x : logits) {
    r.score.push_back(config.score == ScoreFunction::sigmoid ? 1 / (1 + std::exp(-x))
                                                             : std::exp(x) / sum_exp);
    sum_score += r.score.back();
  }
  for (double s : r.score) r.probs.push_back(s / sum_score);
  for (int32_t x : chosen) {
    const auto i = static_cast<size_t>(x);
    r.weights.push_back(config.softmax_after_topk ? std::exp(logits[i]) : r.score[i]);
    sum_chosen += r.weights.back();
  }
  for (double& w : r.weights)
    w *= config.weight_scale / (config.renormalize || config.softmax_after_topk ? sum_chosen : 1);
  return r;
}

/// Every valid combination of score, softmax after top-k, renormalizing and scale, with names for failures.
std::vector<std::pair<std::string, RouterConfig>> all_settings() {
  std::vector<std::pair<std::string, RouterConfig>> list;
  for (bool sigmoid : {false, true})
    for (bool after : {false, true})
      for (bool renormalize : {false, true})
        for (double scale : {1.0, 2.5}) {
          if (sigmoid && after) continue;
          RouterConfig config;
          config.score = sigmoid ? ScoreFunction::sigmoid : ScoreFunction::softmax;
          config.softmax_after_topk = after;
          config.renormalize = renormalize;
          config.weight_scale = scale;
          list.emplace_back(
              fmt::format("sigmoid {} after {} renormalize {} scale {}", sigmoid, after, renormalize, scale),
              config);
        }
  return list;
}

std::vector<int32_t> row(const std::vector<int32_t>& all, int64_t t, int64_t K) {
  return {all.begin() + t * K, all.begin() + (t + 1) * K};
}
std::vector<double> row(const std::vector<float>& all, int64_t t, int64_t E) {
  return {all.begin() + t * E, all.begin() + (t + 1) * E};
}

TEST(RouterForward, EverySettingMatchesADoubleReference) {
  const int64_t T = 50, E = 8, K = 3;
  const auto logits = test::randn(T * E, 1, 2);
  for (const auto& [name, config] : all_settings()) {
    SCOPED_TRACE(name);
    const Routed got = route(config, E, K, logits);
    std::vector<float> weights, probs, lse;
    for (int64_t t = 0; t < T; ++t) {
      std::vector<int32_t> order(E);
      std::iota(order.begin(), order.end(), 0);
      const auto x = row(logits, t, E);
      std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
        return x[static_cast<size_t>(a)] > x[static_cast<size_t>(b)];
      });
      order.resize(K);
      EXPECT_EQ(row(got.indices, t, K), order);
      const Reference want = reference(config, x, order);
      weights.insert(weights.end(), want.weights.begin(), want.weights.end());
      probs.insert(probs.end(), want.probs.begin(), want.probs.end());
      lse.push_back(static_cast<float>(want.lse));
    }
    EXPECT_LT(test::relative_error(got.weights, weights), 1e-6);
    EXPECT_LT(test::relative_error(got.probs, probs), 1e-6);
    EXPECT_LT(test::relative_error(got.lse, lse), 1e-6);
  }
}

TEST(RouterForward, TiesGoToTheLowerExpert) {
  const Routed got = route({}, 6, 3, {1, 2, 2, 1, 2, 2});
  EXPECT_THAT(got.indices, ElementsAre(1, 2, 4));
}

TEST(RouterForward, ForcedBalanceTakesExpertsInTurnAndWeighsThemByTheirScores) {
  RouterConfig config{.renormalize = false, .force_balance = true};
  const Routed got = route(config, 3, 2, {9, 0, 0, 0, 9, 0, 1, 2, 3});
  EXPECT_THAT(got.indices, ElementsAre(0, 1, 2, 0, 1, 2));
  for (size_t i = 0; i < 6; ++i)
    EXPECT_FLOAT_EQ(got.weights[i], got.probs[i / 2 * 3 + static_cast<size_t>(got.indices[i])]);
}

TEST(RouterForward, TheBiasChoosesButDoesNotWeigh) {
  RouterConfig config;
  config.renormalize = false;
  const Routed got = route(config, 4, 2, {3, 2, 1, 0}, {0, -1, 0, 1});
  EXPECT_THAT(got.indices, ElementsAre(3, 0));
  EXPECT_FLOAT_EQ(got.weights[0], got.probs[3]);
  EXPECT_FLOAT_EQ(got.weights[1], got.probs[0]);
}

TEST(RouterForward, AllExpertsChosenIsADenseMixture) {
  const auto logits = test::randn(20 * 8, 2);
  const Routed got = route({}, 8, 8, logits);
  for (int64_t t = 0; t < 20; ++t)
    for (int64_t k = 0; k < 8; ++k) {
      const int64_t x = got.indices[static_cast<size_t>(t * 8 + k)];
      EXPECT_NEAR(got.weights[static_cast<size_t>(t * 8 + k)], got.probs[static_cast<size_t>(t * 8 + x)],
                  1e-6);
    }
}

TEST(RouterForward, GroupsLeftOutNeverWinEvenWhenEveryScoreIsNegative) {
  const int64_t T = 1000, E = 8, K = 3;
  RouterConfig config;
  config.score = ScoreFunction::sigmoid;
  config.num_groups = 4;
  config.num_groups_kept = 2;
  const auto logits = test::randn(T * E, 3);
  const Routed got = route(config, E, K, logits, std::vector<float>(E, -2));
  for (int64_t t = 0; t < T; ++t) {
    // Two experts in a group, so its score is their sum.
    std::vector<std::pair<double, int32_t>> groups;
    const Reference want = reference(config, row(logits, t, E), {});
    for (int32_t i = 0; i < 4; ++i)
      groups.emplace_back(
          -(want.score[static_cast<size_t>(2 * i)] + want.score[static_cast<size_t>(2 * i + 1)]), i);
    std::sort(groups.begin(), groups.end());
    std::set<int32_t> distinct;
    for (int32_t x : row(got.indices, t, K)) {
      EXPECT_TRUE(x / 2 == groups[0].second || x / 2 == groups[1].second) << "token " << t << " expert " << x;
      distinct.insert(x);
    }
    EXPECT_EQ(distinct.size(), static_cast<size_t>(K));
  }
}

TEST(RouterForward, AGroupsScoreIsItsBestWithoutBiasAndItsTwoBestWithIt) {
  RouterConfig config;
  config.score = ScoreFunction::sigmoid;
  config.num_groups = 2;
  config.num_groups_kept = 1;
  // Group 0 has the single best expert, group 1 the better pair.
  const std::vector<float> logits{3, -3, -3, 1, 1, -3};
  EXPECT_THAT(route(config, 6, 1, logits).indices, ElementsAre(0));
  EXPECT_THAT(route(config, 6, 1, logits, std::vector<float>(6, 0.0f)).indices, ElementsAre(3));
}

TEST(RouterForward, NanAndInfNeverGiveAnInvalidOrARepeatedExpert) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  const std::vector<std::vector<float>> rows{
      std::vector<float>(8, nan), {nan, 1, 2, 3, 4, 5, 6, 7},  {0, 1, 2, 3, 4, 5, 6, nan},
      std::vector<float>(8, inf), std::vector<float>(8, -inf), {inf, -inf, nan, 0, nan, inf, 1, nan}};
  for (bool sigmoid : {false, true})
    for (int64_t groups : {1, 4}) {
      RouterConfig config;
      config.score = sigmoid ? ScoreFunction::sigmoid : ScoreFunction::softmax;
      config.num_groups = groups;
      config.num_groups_kept = groups == 1 ? 1 : 2;
      for (const auto& logits : rows) {
        const Routed got = route(config, 8, 4, logits, std::vector<float>(8, 0.5f));
        const std::set<int32_t> distinct(got.indices.begin(), got.indices.end());
        EXPECT_EQ(distinct.size(), 4u);
        EXPECT_TRUE(*distinct.begin() >= 0 && *distinct.rbegin() < 8);
      }
    }
  RouterConfig sigmoid;
  sigmoid.score = ScoreFunction::sigmoid;
  EXPECT_THAT(route(sigmoid, 8, 2, rows[1]).indices, ElementsAre(7, 6));
  EXPECT_THAT(route({}, 8, 2, rows[1]).weights, Each(testing::IsNan())) << "the step must notice";
}

/// loss = sum d_weights weights + sum balance[scope] probs + z sum lse^2 of one token, in FP64.
double loss_of(const RouterConfig& config, const std::vector<double>& logits,
               const std::vector<int32_t>& chosen, const std::vector<double>& d_weights,
               const std::vector<double>& balance, double z) {
  const Reference r = reference(config, logits, chosen);
  double loss = z * r.lse * r.lse;
  for (size_t k = 0; k < chosen.size(); ++k) loss += d_weights[k] * r.weights[k];
  for (size_t x = 0; x < logits.size(); ++x) loss += balance[x] * r.probs[x];
  return loss;
}

TEST(RouterBackward, EverySettingMatchesFiniteDifferences) {
  const int64_t T = 12, E = 8, K = 3, scopes = 3;
  const auto logits = test::randn(T * E, 4, 1.5f);
  const auto balance = test::randn(scopes * E, 6);
  auto d_weights = test::randn(T * K, 5);
  d_weights[4] = 0;  // a dropped row
  std::vector<int32_t> scope;
  for (int32_t t = 0; t < T; ++t) scope.push_back(t % scopes);
  for (const auto& [name, config] : all_settings())
    for (bool with_balance : {false, true})
      for (float z : {0.0f, 0.3f}) {
        SCOPED_TRACE(fmt::format("{} balance {} z {}", name, with_balance, z));
        const Routed forward = route(config, E, K, logits);
        OpRunner r;
        ops::RouterBackward args{.config = config, .z_grad = z};
        args.logits = r.tensor("logits", {T, E}, logits);
        args.indices = r.ints("indices", {T, K}, forward.indices);
        args.weights = r.tensor("weights", {T, K}, forward.weights);
        args.probs = r.tensor("probs", {T, E}, forward.probs);
        if (z != 0) args.lse = r.tensor("lse", {T}, forward.lse);
        args.d_weights = r.tensor("d_weights", {T, K}, d_weights);
        if (with_balance) {
          args.balance_grad = r.tensor("balance_grad", {scopes, E}, balance);
          args.scope = r.ints("scope", {T}, scope);
        }
        args.d_logits = r.tensor("d_logits", {T, E});
        ops::router_backward(r.program(), Stream::compute, args);
        r.run();

        std::vector<float> want;
        for (int64_t t = 0; t < T; ++t) {
          const auto chosen = row(forward.indices, t, K);
          const auto scope_balance =
              with_balance ? row(balance, scope[static_cast<size_t>(t)], E) : std::vector<double>(E, 0.0);
          for (size_t x = 0; x < E; ++x) {
            const double h = 1e-5;
            auto up = row(logits, t, E), down = up;
            up[x] += h;
            down[x] -= h;
            const auto f = [&](const std::vector<double>& at) {
              return loss_of(config, at, chosen, row(d_weights, t, K), scope_balance, z);
            };
            want.push_back(static_cast<float>((f(up) - f(down)) / (2 * h)));
          }
        }
        EXPECT_LT(test::relative_error(r.get(args.d_logits), want), 2e-6);
        const double numbers = T * (2 * E + 3 * K + (with_balance ? 1 : 0) + (z != 0 ? 1 : 0)) + T * E +
                               (with_balance ? scopes * E : 0);
        EXPECT_EQ(r.program().nodes()[0].cost.bytes, 4 * numbers);
      }
}

TEST(RouterForward, CostIsEveryTensorOnce) {
  OpRunner r;
  ops::RouterForward args;
  args.logits = r.tensor("logits", {5, 8});
  args.indices = r.ints("indices", {5, 2});
  args.weights = r.tensor("weights", {5, 2});
  args.probs = r.tensor("probs", {5, 8});
  ops::router_forward(r.program(), Stream::compute, args);
  EXPECT_EQ(r.program().nodes()[0].cost.bytes, 4 * (2 * 40 + 2 * 10));
}

/// The bias after one update with rate 0.5 from `before`.
std::vector<float> updated_bias(const std::vector<int32_t>& counts, float before, int32_t ok) {
  OpRunner r;
  const auto E = static_cast<int64_t>(counts.size());
  ops::RouterBiasUpdate args{.rate = 0.5f};
  args.counts = r.ints("counts", {E}, counts);
  args.bias = r.tensor("bias", {E}, std::vector<float>(counts.size(), before));
  args.ok = r.ints("ok", {1}, {ok});
  ops::router_bias_update(r.program(), Stream::compute, args);
  r.run();
  EXPECT_EQ(r.program().nodes()[0].cost.bytes, 4.0 * static_cast<double>(3 * E + 1));
  return r.get(args.bias);
}

TEST(RouterBiasUpdate, ComparesCountsWithTheirMeanExactly) {
  // Mean 40960: in a 16-bit float 40840 and 40960 would be the same number.
  EXPECT_THAT(updated_bias({40840, 41080, 40960, 40960}, 1, 1), ElementsAre(1.5f, 0.5f, 1.0f, 1.0f));
  EXPECT_THAT(updated_bias({40959, 40961, 40960, 40960}, 1, 1), ElementsAre(1.5f, 0.5f, 1.0f, 1.0f));
  // A total past 32 bits.
  EXPECT_THAT(updated_bias({2000000000, 2000000001, 2000000000, 1999999999}, 1, 1),
              ElementsAre(1.0f, 0.5f, 1.0f, 1.5f));
  // A mean that is not whole.
  EXPECT_THAT(updated_bias({1, 2, 2}, 0, 1), ElementsAre(0.5f, -0.5f, -0.5f));
}

TEST(RouterBiasUpdate, DoesNothingWhenTheStepIsNotOk) {
  EXPECT_THAT(updated_bias({1, 2, 3}, 0.25f, 0), Each(0.25f));
}

}  // namespace
}  // namespace moesaic
