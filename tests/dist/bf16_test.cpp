// BF16 on any layout: the ratio of each tensor's gradient norm to that of one rank is within 0.5 %. BF16 rounds differently
// where sums are cut differently, and a token whose two best experts are close may then choose another one, so routing is
// pinned: every token goes to all experts, or a bias that no score can outweigh chooses the same K for all.
#include <gtest/gtest.h>

#include "support/layout_cases.h"
#include "support/setup_z.h"

namespace moesaic::test {
namespace {

constexpr int kShares = 4;

class Bf16 : public testing::TestWithParam<int> {};

void compare(const LayoutCase& c, const Around& steering) {
  const auto run = [&](const LayoutCase& which) {
    Around around = steering;
    around.source = [&](std::span<const int64_t> positions) {
      return random_batch(positions, c.config.train.seq_len, c.config.model.vocab, c.packed);
    };
    return run_layout(which.config, 1, around);
  };
  const Outcome one = run(one_rank(c)), many = run(c);
  ASSERT_EQ(many.steps[0].expert_load, one.steps[0].expert_load);
  EXPECT_NEAR(many.steps[0].loss, one.steps[0].loss, 2e-3 * one.steps[0].loss);
  ASSERT_EQ(many.gradients.size(), one.gradients.size());
  for (const auto& [name, gradient] : one.gradients) {
    const double expected = norm_of(gradient), found = norm_of(many.gradients.at(name));
    EXPECT_NEAR(found, expected, 5e-3 * expected) << name;
  }
}

LayoutCase pinned(LayoutCase c) {
  c.config.train.compute = ComputeType::bf16;
  RouterConfig& r = c.config.model.router;
  r.num_groups = r.num_groups_kept = 1;
  r.bias_rate = 0;
  c.config.model.head_dim = 64;  // else the gains of q and k have few elements, whose errors do not cancel
  return c;
}

TEST_P(Bf16, EveryTokenToAllExperts) {
  for_each_share(pairwise_cases(8, 1), GetParam(), kShares, [](LayoutCase c) {
    c = pinned(c);
    c.config.model.top_k = c.config.model.num_experts;
    compare(c, {});
  });
}

TEST_P(Bf16, EveryTokenToTheSameExperts) {
  for_each_share(pairwise_cases(8, 1), GetParam(), kShares, [](LayoutCase c) {
    c = pinned(c);
    steer_by_bias(c.config);
    c.config.model.top_k = 3;
    compare(c, only_experts({1, 7, 12}));
  });
}

INSTANTIATE_TEST_SUITE_P(Pairwise, Bf16, testing::Range(0, kShares));

}  // namespace
}  // namespace moesaic::test
