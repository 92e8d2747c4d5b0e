// Any layout gives the one-rank result (design: FP32 loss 1e-5 relative, gradients 1e-4, updates 1e-3 under SGD and 1e-2
// under AdamW with eps 1e-4).
#include <gtest/gtest.h>

#include "support/layout_runner.h"

namespace moesaic::test {
namespace {

void expect_equal(const Outcome& a, const Outcome& b, double update_bound, const std::string& what) {
  ASSERT_EQ(a.steps.size(), b.steps.size()) << what;
  for (size_t i = 0; i < b.steps.size(); ++i) {
    EXPECT_NEAR(a.steps[i].loss, b.steps[i].loss, 1e-5 * b.steps[i].loss) << what << " step " << i;
    EXPECT_NEAR(a.steps[i].aux_loss, b.steps[i].aux_loss, 1e-5 * b.steps[i].aux_loss + 1e-12) << what;
    EXPECT_NEAR(a.steps[i].z_loss, b.steps[i].z_loss, 1e-5 * b.steps[i].z_loss + 1e-12) << what;
    EXPECT_EQ(a.steps[i].expert_load, b.steps[i].expert_load) << what << " step " << i;
    EXPECT_EQ(a.steps[i].counted, b.steps[i].counted) << what;
    EXPECT_TRUE(a.steps[i].updated) << what;
  }
  const auto [gradient_error, gradient] = worst(a.gradients, b.gradients);
  EXPECT_LT(gradient_error, 1e-4) << what << ": gradient of " << gradient;
  const auto [update_error, update] = worst(a.updates, b.updates);
  EXPECT_LT(update_error, update_bound) << what << ": update of " << update;
}

TEST(Layouts, FirstLook) {
  Config c = small_config();
  const Outcome one = run_layout(c, 1);
  for (const auto& [n, dp] : std::vector<std::pair<int, int>>{{2, 1}, {1, 2}, {2, 2}, {4, 1}}) {
    Config d = c;
    d.layout.n = n, d.layout.dp = dp;
    d.train.micro_batch = 8 / dp;
    expect_equal(run_layout(d, 1), one, 1e-3, fmt::format("n {} dp {}", n, dp));
  }
}

}  // namespace
}  // namespace moesaic::test
