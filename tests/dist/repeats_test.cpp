// The same layout twice, every legal order of its ops (chaos mode runs ops of different streams in seeded random order), and
// every choice of what is kept or rebuilt give the same bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/layout_cases.h"

namespace moesaic::test {
namespace {

constexpr int kShares = 4;
constexpr int64_t kSteps = 2;
constexpr uint64_t kChaosSeeds = kSanitized ? 1 : 3;

void expect_same_bits(const Outcome& a, const Outcome& b) {
  ASSERT_EQ(a.steps.size(), b.steps.size());
  for (size_t i = 0; i < b.steps.size(); ++i) {
    EXPECT_EQ(a.steps[i].loss, b.steps[i].loss) << "step " << i;
    EXPECT_EQ(a.steps[i].aux_loss, b.steps[i].aux_loss) << "step " << i;
    EXPECT_EQ(a.steps[i].z_loss, b.steps[i].z_loss) << "step " << i;
    EXPECT_EQ(a.steps[i].grad_norm, b.steps[i].grad_norm) << "step " << i;
    EXPECT_EQ(a.steps[i].expert_load, b.steps[i].expert_load) << "step " << i;
    EXPECT_EQ(a.steps[i].dropped, b.steps[i].dropped) << "step " << i;
  }
  EXPECT_THAT(different(a.first_gradients, b.first_gradients), testing::IsEmpty());
  EXPECT_THAT(different(a.gradients, b.gradients), testing::IsEmpty());
  EXPECT_THAT(different(a.weights, b.weights), testing::IsEmpty());
  EXPECT_THAT(different(a.biases, b.biases), testing::IsEmpty());
}

class Repeats : public testing::TestWithParam<int> {};

TEST_P(Repeats, TheSameLayoutTwiceAndInChaosModeIsBitEqual) {
  for_each_share(pairwise_cases(8, 1), GetParam(), kShares, [](LayoutCase c) {
    c.config.optim.kind = OptimizerKind::adamw;
    const Outcome first = run_case(c, kSteps);
    EXPECT_THAT(first.unlike, testing::IsEmpty());
    expect_same_bits(run_case(c, kSteps), first);
    c.config.run.replay = ReplayMode::chaos;
    for (c.config.run.chaos_seed = 1; c.config.run.chaos_seed <= kChaosSeeds; ++c.config.run.chaos_seed) {
      SCOPED_TRACE(fmt::format("chaos seed {}", c.config.run.chaos_seed));
      expect_same_bits(run_case(c, kSteps), first);
    }
  });
}

TEST_P(Repeats, Bf16InChaosModeIsBitEqual) {
  for_each_share(pairwise_cases(8, 1), GetParam(), kShares, [](LayoutCase c) {
    c.config.train.compute = ComputeType::bf16;
    c.config.optim.kind = OptimizerKind::adamw;
    const Outcome first = run_case(c, kSteps);
    c.config.run.replay = ReplayMode::chaos;
    expect_same_bits(run_case(c, kSteps), first);
  });
}

TEST_P(Repeats, KeptAndRebuiltActivationsAreBitEqual) {
  for_each_share(pairwise_cases(8, 1), GetParam(), kShares, [](LayoutCase c) {
    c.config.optim.kind = OptimizerKind::adamw;
    for (const ComputeType type : {ComputeType::f32, ComputeType::bf16}) {
      c.config.train.compute = type;
      c.config.layout.rebuild = Rebuild::none;
      const Outcome kept = run_case(c, kSteps);
      for (const Rebuild policy : {Rebuild::selective, Rebuild::full}) {
        SCOPED_TRACE(fmt::format("type {} policy {}", static_cast<int>(type), static_cast<int>(policy)));
        c.config.layout.rebuild = policy;
        expect_same_bits(run_case(c, kSteps), kept);
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Pairwise, Repeats, testing::Range(0, kShares));

}  // namespace
}  // namespace moesaic::test
