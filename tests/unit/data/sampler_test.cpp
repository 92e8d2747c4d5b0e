#include "data/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace moesaic {
namespace {

std::vector<int64_t> epoch(const Sampler& sampler, int64_t index) {
  std::vector<int64_t> samples;
  for (int64_t i = 0; i < sampler.num_samples(); ++i) {
    samples.push_back(sampler.sample_at(index * sampler.num_samples() + i));
  }
  return samples;
}

TEST(Sampler, VisitsEachSampleOncePerEpoch) {
  for (const int64_t count : {1, 2, 3, 4, 5, 10, 16, 17, 63, 64, 65, 1000, 4097}) {
    const Sampler sampler(count, 42);
    for (int64_t k = 0; k < 3; ++k) {
      const auto samples = epoch(sampler, k);
      const std::set<int64_t> distinct(samples.begin(), samples.end());
      EXPECT_EQ(static_cast<int64_t>(distinct.size()), count);
      EXPECT_EQ(*distinct.begin(), 0);
      EXPECT_EQ(*distinct.rbegin(), count - 1);
    }
  }
}

TEST(Sampler, ShufflesDifferentlyPerEpochAndSeed) {
  const Sampler a(1000, 1), b(1000, 2);
  EXPECT_NE(epoch(a, 0), epoch(a, 1));
  EXPECT_NE(epoch(a, 0), epoch(b, 0));
  EXPECT_EQ(epoch(a, 5), epoch(Sampler(1000, 1), 5));
}

TEST(Sampler, PutsEachSampleAtEachPlaceEquallyOften) {
  // 10 samples over 20000 epochs: each (place, sample) pair is expected 2000 times, with a deviation of 42.
  const Sampler sampler(10, 3);
  std::vector<int> seen(100);
  for (int64_t i = 0; i < 200000; ++i) ++seen[static_cast<size_t>(i % 10 * 10 + sampler.sample_at(i))];
  for (const int count : seen) EXPECT_NEAR(count, 2000, 5 * 42);
}

TEST(Sampler, HasNoOrderLeftInALongEpoch) {
  const int64_t count = 50000;
  const Sampler sampler(count, 9);
  double correlation = 0;
  for (int64_t i = 0; i < count; ++i) {
    correlation +=
        (static_cast<double>(i) / count - 0.5) * (static_cast<double>(sampler.sample_at(i)) / count - 0.5);
  }
  EXPECT_LT(std::abs(correlation * 12 / count), 5 / std::sqrt(count));
}

TEST(Sampler, TakesHugeSets) {
  const int64_t count = (int64_t{1} << 62) + 12345;
  const Sampler sampler(count, 1);
  std::set<int64_t> seen;
  for (int64_t i = 0; i < 1000; ++i) {
    const int64_t sample = sampler.sample_at(i);
    EXPECT_TRUE(sample >= 0 && sample < count);
    seen.insert(sample);
  }
  EXPECT_EQ(seen.size(), 1000u);
}

}  // namespace
}  // namespace moesaic
