#include "data/blend.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

namespace moesaic {
namespace {

/// The largest distance of any set's count from its share of weights, over all prefixes up to `count`; also checks that each
/// set's samples come in order.
double worst_lag(const Blend& blend, const std::vector<double>& weights, int64_t count) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<int64_t> given(weights.size(), 0);
  double worst = 0;
  for (int64_t position = 0; position < count; ++position) {
    const Blend::Place place = blend.at(position);
    const auto set = static_cast<size_t>(place.set);
    EXPECT_EQ(place.index, given[set]) << "position " << position;
    ++given[set];
    for (size_t k = 0; k < weights.size(); ++k)
      worst = std::max(worst, std::abs(static_cast<double>(given[k]) -
                                       weights[k] / sum * static_cast<double>(position + 1)));
  }
  return worst;
}

TEST(Blend, KeepsSharesWithinOneSampleAtEveryPrefix) {
  const std::vector<std::vector<double>> cases = {{1},
                                                  {1, 1},
                                                  {0.7, 0.3},
                                                  {0.001, 0.999},
                                                  {3, 3, 3},
                                                  {0.5, 0.25, 0.125, 0.0625, 0.0625},
                                                  {1, 2, 3, 4, 5, 6, 7, 8},
                                                  {0.333, 0.333, 0.334},
                                                  {0.97, 0.01, 0.01, 0.01},
                                                  {1e-3, 5, 200.25}};
  for (const auto& weights : cases) {
    const Blend blend(weights);
    EXPECT_LT(worst_lag(blend, weights, 5000), 1);
  }
}

TEST(Blend, KeepsRandomSharesWithinOneSampleAtEveryPrefix) {
  std::mt19937 random(3);
  for (int round = 0; round < 60; ++round) {
    std::vector<double> weights(2 + random() % 12);
    for (double& w : weights) w = static_cast<double>(1 + random() % (1u << (1 + random() % 10)));
    EXPECT_LT(worst_lag(Blend(weights), weights, 2000), 1);
  }
}

TEST(Blend, HasThePeriodOfItsDecimals) {
  const Blend blend(std::vector<double>{0.7, 0.3});
  EXPECT_EQ(blend.period(), 10);
  EXPECT_EQ(blend.share(0), 7);
  EXPECT_EQ(Blend(std::vector<double>{0.001, 0.999}).period(), 1000);
  EXPECT_EQ(Blend(std::vector<double>{40, 60}).period(), 5);
  EXPECT_EQ(Blend(std::vector<double>{1e-7, 2e-7}).period(), 3);
  EXPECT_EQ(Blend(std::vector<double>{5}).period(), 1);
}

TEST(Blend, RoundsOtherSharesToAMillionth) {
  const std::vector<double> weights = {12345678901.0, 98765432101.0, 3.0, std::sqrt(2.0) * 1e10};
  const Blend blend(weights);
  EXPECT_EQ(blend.period(), Blend::kMaxPeriod);
  EXPECT_EQ(blend.share(2), 1);  // no set is left out
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (const int64_t k : {0, 1, 3})
    EXPECT_NEAR(static_cast<double>(blend.share(k)),
                weights[static_cast<size_t>(k)] / sum * static_cast<double>(Blend::kMaxPeriod), 2);
  const auto lag = worst_lag(Blend(std::vector<double>{M_PI, 1}), {M_PI, 1}, 20'000);
  EXPECT_LT(lag, 1.1);
  // Many sets of next to nothing beside a large one.
  std::vector<double> many(255, 1e-9);
  many.push_back(M_PI);
  int64_t total = 0;
  const Blend wide(many);
  for (int64_t k = 0; k < 256; ++k) total += wide.share(k);
  EXPECT_EQ(total, Blend::kMaxPeriod);
  EXPECT_EQ(wide.share(0), 1);
}

TEST(Blend, KnowsAnyPositionWithoutTheOnesBefore) {
  const Blend blend(std::vector<double>{0.7, 0.3});
  const Blend::Place far = blend.at(10'000'000'000'000'003);
  const Blend::Place near = blend.at(3);
  EXPECT_EQ(far.set, near.set);
  EXPECT_EQ(far.index, near.index + blend.share(near.set) * 1'000'000'000'000'000);
}

}  // namespace
}  // namespace moesaic
