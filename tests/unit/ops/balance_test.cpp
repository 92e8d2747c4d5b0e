#include "ops/balance/balance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "ops/router/router.h"
#include "support/op_runner.h"

namespace moesaic {
namespace {

using test::OpRunner;
using testing::ElementsAre;

TEST(BalanceCount, CountsChoicesAndSumsProbabilitiesPerScope) {
  OpRunner r;
  ops::BalanceCount args;
  args.indices = r.ints("indices", {4, 2}, {0, 2, 2, 1, 2, 0, -1, 1});
  args.probs = r.tensor("probs", {4, 3}, {.5f, .25f, .25f, 0, 0, 1, .125f, .5f, .375f, 1, 0, 0});
  args.scope = r.ints("scope", {4}, {2, 0, 2, 0});
  args.counts = r.ints("counts", {3, 3});
  args.prob_sums = r.tensor("prob_sums", {3, 3});
  ops::balance_count(r.program(), Stream::compute, args);
  r.run();
  EXPECT_THAT(r.get_ints(args.counts), ElementsAre(0, 2, 1, 0, 0, 0, 2, 0, 2));
  EXPECT_THAT(r.get(args.prob_sums), ElementsAre(1, 0, 1, 0, 0, 0, .625f, .75f, .625f));
  EXPECT_EQ(r.program().nodes()[0].cost.bytes, 4.0 * (8 + 12 + 4 + 9 + 9));
}

/// sum over scopes of L, as the contract defines it, in FP64.
double balance_reference(const std::vector<int32_t>& counts, const std::vector<double>& prob_sums, int64_t E,
                         int64_t groups, double K, double N) {
  double sum = 0;
  for (size_t scope = 0; scope * static_cast<size_t>(E) < counts.size(); ++scope) {
    std::map<int64_t, double> f, P;
    for (int64_t x = 0; x < E; ++x) {
      const int64_t group = x * groups / E;
      const size_t i = scope * static_cast<size_t>(E) + static_cast<size_t>(x);
      f[group] +=
          static_cast<double>(E) / (K * N) * counts[i] * static_cast<double>(groups) / static_cast<double>(E);
      P[group] += prob_sums[i] / N;
    }
    for (const auto& [group, value] : f) sum += value * P[group];
  }
  return sum;
}

struct LossResult {
  float loss;
  std::vector<float> grad;
};

LossResult loss_of(const std::vector<int32_t>& counts, const std::vector<float>& prob_sums, int64_t E,
                   int64_t groups, int64_t K, int64_t N, float coef, float before = 0) {
  OpRunner r;
  ops::BalanceLoss args{.top_k = K, .expert_groups = groups, .tokens_per_scope = N, .coef = coef};
  const auto scopes = static_cast<int64_t>(counts.size()) / E;
  args.counts = r.ints("counts", {scopes, E}, counts);
  args.prob_sums = r.tensor("prob_sums", {scopes, E}, prob_sums);
  args.loss = r.tensor("loss", {1}, {before});
  args.grad = r.tensor("grad", {scopes, E});
  ops::balance_loss(r.program(), Stream::compute, args);
  r.run();
  EXPECT_EQ(r.program().nodes()[0].cost.bytes, 4.0 * static_cast<double>(3 * scopes * E + 2));
  return {r.get(args.loss)[0], r.get(args.grad)};
}

TEST(BalanceLoss, IsOnePerScopeWhenBalancedAndIsAddedToTheLoss) {
  const std::vector<int32_t> counts(2 * 4, 3);
  const std::vector<float> prob_sums(2 * 4, 1.5f);
  EXPECT_FLOAT_EQ(loss_of(counts, prob_sums, 4, 0, 2, 6, 0.5f, 10).loss, 10 + 0.5f * 2);
  EXPECT_FLOAT_EQ(loss_of(counts, prob_sums, 4, 2, 2, 6, 0.5f, 10).loss, 10 + 0.5f * 2);
}

TEST(BalanceLoss, IsTheNumberOfExpertsOverKWhenOneTakesAll) {
  EXPECT_FLOAT_EQ(loss_of({6, 0, 0, 0}, {6, 0, 0, 0}, 4, 0, 1, 6, 1).loss, 4);
}

TEST(BalanceLoss, GradientThroughTheRouterMatchesFiniteDifferences) {
  const int64_t T = 12, E = 8, K = 2;
  const float coef = 0.7f;
  auto logits = test::randn(T * E, 11);
  for (size_t i = 1; i < logits.size(); i += E) logits[i] += 1;  // a favourite, so that no gradient vanishes
  for (ScoreFunction score : {ScoreFunction::softmax, ScoreFunction::sigmoid})
    for (int64_t scopes : {1, 3})
      for (int64_t groups : {0, 8, 4, 2}) {
        SCOPED_TRACE(
            fmt::format("sigmoid {} scopes {} groups {}", score == ScoreFunction::sigmoid, scopes, groups));
        std::vector<int32_t> scope(T);
        for (int32_t t = 0; t < T; ++t) scope[static_cast<size_t>(t)] = t % static_cast<int32_t>(scopes);
        OpRunner r;
        RouterConfig config;
        config.score = score;
        ops::RouterForward forward{.config = config};
        forward.logits = r.tensor("logits", {T, E}, logits);
        forward.indices = r.ints("indices", {T, K});
        forward.weights = r.tensor("weights", {T, K});
        forward.probs = r.tensor("probs", {T, E});
        ops::router_forward(r.program(), Stream::compute, forward);
        const Handle scope_of = r.ints("scope", {T}, scope), counts = r.ints("counts", {scopes, E});
        const Handle prob_sums = r.tensor("prob_sums", {scopes, E});
        ops::balance_count(r.program(), Stream::compute,
                           {forward.indices, forward.probs, scope_of, counts, prob_sums});
        const Handle loss = r.tensor("loss", {1}, {0}), grad = r.tensor("grad", {scopes, E});
        ops::balance_loss(r.program(), Stream::compute,
                          {counts, prob_sums, loss, grad, K, groups, T / scopes, coef});
        ops::RouterBackward backward{.config = config};
        backward.logits = forward.logits;
        backward.indices = forward.indices;
        backward.weights = forward.weights;
        backward.probs = forward.probs;
        backward.d_weights = r.tensor("d_weights", {T, K}, std::vector<float>(T * K, 0.0f));
        backward.balance_grad = grad;
        backward.scope = scope_of;
        backward.d_logits = r.tensor("d_logits", {T, E});
        ops::router_backward(r.program(), Stream::compute, backward);
        r.run();

        const auto loss_at = [&](const std::vector<double>& x) {
          std::vector<double> sums(static_cast<size_t>(scopes * E), 0);
          for (size_t t = 0; t < T; ++t) {
            double total = 0;
            const auto s = [&](size_t i) {
              return score == ScoreFunction::sigmoid ? 1 / (1 + std::exp(-x[t * E + i]))
                                                     : std::exp(x[t * E + i]);
            };
            for (size_t i = 0; i < E; ++i) total += s(i);
            for (size_t i = 0; i < E; ++i) sums[static_cast<size_t>(scope[t]) * E + i] += s(i) / total;
          }
          const int64_t tokens = T / scopes;
          return coef * balance_reference(r.get_ints(counts), sums, E, groups == 0 ? E : groups, K,
                                          static_cast<double>(tokens));
        };
        std::vector<double> x(logits.begin(), logits.end());
        EXPECT_NEAR(r.get(loss)[0], loss_at(x), 1e-6 * loss_at(x));
        std::vector<float> want;
        for (double& value : x) {
          const double h = 1e-5, at = value;
          value = at + h;
          const double up = loss_at(x);
          value = at - h;
          want.push_back(static_cast<float>((up - loss_at(x)) / (2 * h)));
          value = at;
        }
        EXPECT_LT(test::relative_error(r.get(backward.d_logits), want), 1e-5);
      }
}

TEST(BalanceLoss, TheGradientIsProportionalToTheCoefficient) {
  const auto counts = std::vector<int32_t>{5, 3, 1, 3};
  const auto sums = std::vector<float>{2, 1, 1, 2};
  const auto one = loss_of(counts, sums, 4, 0, 2, 6, 1e-3f), ten = loss_of(counts, sums, 4, 0, 2, 6, 1e-2f);
  const auto zero = loss_of(counts, sums, 4, 0, 2, 6, 0);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(ten.grad[i] / one.grad[i], 10, 1e-5);
    EXPECT_EQ(zero.grad[i], 0);
  }
}

TEST(BalanceLoss, IdenticalSequencesGiveTheSameGradientInAnyNumberOfScopes) {
  // Eight equal sequences of 6 tokens as 8 scopes, or together as one: the coefficient counts the scopes.
  const std::vector<int32_t> counts{5, 3, 1, 3};
  const std::vector<float> sums{2, 1, 1, 2};
  const auto apart = loss_of(counts, sums, 4, 0, 2, 6, 1.0f / 8);
  std::vector<int32_t> all_counts(4);
  std::vector<float> all_sums(4);
  for (size_t i = 0; i < 4; ++i) {
    all_counts[i] = 8 * counts[i];
    all_sums[i] = 8 * sums[i];
  }
  const auto together = loss_of(all_counts, all_sums, 4, 0, 2, 48, 1);
  EXPECT_FLOAT_EQ(8 * apart.loss, together.loss);
  for (size_t i = 0; i < 4; ++i) EXPECT_FLOAT_EQ(apart.grad[i], together.grad[i]);
}

TEST(ZLoss, AddsTheSumOfSquaresOfTheLogSumExp) {
  OpRunner r;
  const Handle lse = r.tensor("lse", {3}, {1, -2, 3}), loss = r.tensor("loss", {1}, {5});
  ops::z_loss(r.program(), Stream::compute, {lse, loss, 0.5f});
  r.run();
  EXPECT_FLOAT_EQ(r.get(loss)[0], 5 + 0.5f * 14);
  EXPECT_EQ(r.program().nodes()[0].cost.bytes, 4 * (3 + 2));
}

struct Kept {
  std::vector<int32_t> indices;
  int32_t dropped;
};

Kept keep(const std::vector<int32_t>& indices, const std::vector<int32_t>& scope, int64_t K,
          ops::Capacity args, int64_t T, const std::vector<int32_t>& order = {}) {
  OpRunner r;
  const auto N = static_cast<int64_t>(scope.size());
  args.all_indices = r.ints("all_indices", {N, K}, indices);
  args.all_scope = r.ints("all_scope", {N}, scope);
  if (!order.empty()) args.order = r.ints("order", {N}, order);
  args.kept = r.ints("kept", {T, K});
  args.dropped = r.ints("dropped", {1}, {100});
  ops::capacity(r.program(), Stream::compute, args);
  r.run();
  EXPECT_EQ(r.program().nodes()[0].cost.bytes,
            4.0 * static_cast<double>(N * K + N + T * K + 2 + static_cast<int64_t>(order.size())));
  return {r.get_ints(args.kept), r.get_ints(args.dropped)[0]};
}

TEST(Capacity, KeepsTheFirstRowsOfEachExpertInOrderOfToken) {
  const Kept got =
      keep({2, 0, 2, 1, 2, 1, 0, 2}, {0, 0, 0, 0}, 2, {.num_experts = 3, .num_scopes = 1, .capacity = 2}, 4);
  EXPECT_THAT(got.indices, ElementsAre(2, 0, 2, 1, -1, 1, 0, -1));
  EXPECT_EQ(got.dropped, 100 + 2);
}

TEST(Capacity, AGroupOfExpertsSharesItsRoomInOrderOfTokenThenK) {
  const Kept got = keep({3, 2, 0, 3, 1, 2}, {0, 0, 0}, 2,
                        {.num_experts = 4, .expert_groups = 2, .num_scopes = 1, .capacity = 1}, 3);
  EXPECT_THAT(got.indices, ElementsAre(3, -1, 0, -1, -1, -1));
  EXPECT_EQ(got.dropped, 100 + 4);
}

TEST(Capacity, ScopesCountApartAndEarlierTokensOfOtherRanksCountToo) {
  // Tokens 2 .. 4 are this rank's; scopes alternate; each keeps two rows per expert.
  const Kept got = keep({1, 1, 1, 1, 1, 0}, {0, 1, 0, 1, 0, 1}, 1,
                        {.first = 2, .num_experts = 2, .num_scopes = 2, .capacity = 2}, 3);
  EXPECT_THAT(got.indices, ElementsAre(1, 1, -1));
  EXPECT_EQ(got.dropped, 100 + 1);
}

TEST(Capacity, TokensAreTakenInTheGivenOrder) {
  // Two sequences of four tokens on two ranks: each rank holds half of both.
  const std::vector<int32_t> indices{0, 0, 1, 0, 0, 0, 0, 1}, scope(8, 0), order{0, 1, 4, 5, 2, 3, 6, 7};
  const ops::Capacity first{.first = 0, .num_experts = 2, .num_scopes = 1, .capacity = 3};
  const Kept of_first = keep(indices, scope, 1, first, 4, order);
  EXPECT_THAT(of_first.indices, ElementsAre(0, 0, 1, -1));
  EXPECT_EQ(of_first.dropped, 100 + 1);
  ops::Capacity second = first;
  second.first = 4;
  const Kept of_second = keep(indices, scope, 1, second, 4, order);
  EXPECT_THAT(of_second.indices, ElementsAre(0, -1, -1, 1));
  EXPECT_EQ(of_second.dropped, 100 + 2);
}

TEST(Capacity, AnyOrderGivesWhatTheSameTokensGiveWhenTheyLieInIt) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const int64_t N = 24, K = 2, T = 8;
    std::vector<int32_t> indices, scope, order(N), sorted_indices, sorted_scope;
    for (uint64_t i = 0; i < N * K; ++i)
      indices.push_back(static_cast<int32_t>(random_below(7, seed, 1, i)) - 1);
    for (uint64_t t = 0; t < N; ++t) scope.push_back(static_cast<int32_t>(random_below(2, seed, 2, t)));
    std::iota(order.begin(), order.end(), 0);
    for (size_t i = order.size() - 1; i > 0; --i) std::swap(order[i], order[random_below(i + 1, seed, 3, i)]);
    for (const int32_t t : order) {
      sorted_scope.push_back(scope[static_cast<size_t>(t)]);
      for (int64_t k = 0; k < K; ++k) sorted_indices.push_back(indices[static_cast<size_t>(t * K + k)]);
    }
    ops::Capacity args{.num_experts = 6, .expert_groups = 3, .num_scopes = 2, .capacity = 5};
    const Kept whole = keep(sorted_indices, sorted_scope, K, args, N);
    int32_t dropped = 0;
    for (args.first = 0; args.first < N; args.first += T) {
      const Kept part = keep(indices, scope, K, args, T, order);
      dropped += part.dropped - 100;
      for (size_t i = 0; i < order.size(); ++i) {
        const int64_t t = order[i] - args.first;
        if (t < 0 || t >= T) continue;
        for (size_t k = 0; k < K; ++k)
          EXPECT_EQ(part.indices[static_cast<size_t>(t * K) + k], whole.indices[i * K + k])
              << "seed " << seed;
      }
    }
    EXPECT_EQ(dropped, whole.dropped - 100);
  }
}

TEST(Capacity, NothingIsDroppedTwice) {
  const Kept got = keep({-1, 0, -1, 0}, {0, 0}, 2, {.num_experts = 2, .num_scopes = 1, .capacity = 1}, 2);
  EXPECT_THAT(got.indices, ElementsAre(-1, 0, -1, -1));
  EXPECT_EQ(got.dropped, 100 + 1);
}

TEST(AddCounts, AddsTheColumnSums) {
  OpRunner r;
  const Handle counts = r.ints("counts", {2, 3}, {1, 2, 3, 10, 20, 30}),
               totals = r.ints("totals", {3}, {5, 0, 0});
  ops::add_counts(r.program(), Stream::compute, {counts, totals});
  r.run();
  EXPECT_THAT(r.get_ints(totals), ElementsAre(16, 22, 33));
  EXPECT_EQ(r.program().nodes()[0].cost.bytes, 4 * (6 + 2 * 3));
}

}  // namespace
}  // namespace moesaic
