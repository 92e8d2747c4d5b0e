// Case 15, aux and z-loss depend on the parallel layout or the micro-batch (Megatron-LM PR 5047, 1652, PR 5798): scaled by a local
// token count. Right: the same gradient of the router with SP 1, 2, 4 and micro-batches of 1 and 2. The main loss is off.
#include "support/setup_z.h"

namespace moesaic::test {
namespace {

struct Losses {
  double aux, z;
};

Outcome run(int64_t n, int64_t dp, int64_t micro_batch, BalanceScope scope, Losses coef) {
  Config c = on_ranks(setup_z(), n);
  c.layout.dp = dp;
  c.train.micro_batch = micro_batch;
  c.balance.scope = scope;
  c.balance.aux_coef = coef.aux;
  c.balance.z_coef = coef.z;
  return run_layout(c, 1, {.source = uncounted(c)});
}

void expect_same_router_gradient(const Outcome& a, const Outcome& b, Losses coef) {
  EXPECT_EQ(a.steps[0].expert_load, b.steps[0].expert_load);
  EXPECT_NEAR(a.steps[0].aux_loss, b.steps[0].aux_loss, 1e-5 * b.steps[0].aux_loss);
  EXPECT_NEAR(a.steps[0].z_loss, b.steps[0].z_loss, 1e-5 * b.steps[0].z_loss);
  EXPECT_EQ(b.steps[0].aux_loss > 0, coef.aux > 0);
  EXPECT_EQ(b.steps[0].z_loss > 0, coef.z > 0);
  for (int64_t layer = 0; layer < 4; ++layer) {
    EXPECT_GT(norm_of(b.gradients.at(router_of(layer))), 0);
    EXPECT_LT(relative_error(a.gradients.at(router_of(layer)), b.gradients.at(router_of(layer))), 1e-4)
        << "layer " << layer;
  }
}

TEST(Case15, TheSequenceScopeAndTheZLossAreFreeOfTheLayout) {
  for (const Losses coef : {Losses{1e-2, 0}, Losses{0, 1e-3}}) {
    const Outcome one = run(1, 1, 8, BalanceScope::sequence, coef);
    for (const auto& [n, dp, micro_batch] : std::vector<std::array<int64_t, 3>>{{1, 1, 1},
                                                                                {1, 1, 2},
                                                                                {2, 1, 8},
                                                                                {2, 1, 1},
                                                                                {4, 1, 8},
                                                                                {4, 1, 2},
                                                                                {1, 2, 4},
                                                                                {2, 2, 2},
                                                                                {4, 2, 1}}) {
      SCOPED_TRACE(fmt::format("n {} dp {} micro-batch {}", n, dp, micro_batch));
      expect_same_router_gradient(run(n, dp, micro_batch, BalanceScope::sequence, coef), one, coef);
    }
  }
}

TEST(Case15, TheMicroBatchScopeDependsOnTheMicroBatchAlone) {
  const Losses coef{1e-2, 0};
  for (const int64_t micro_batch : {1, 2}) {
    const Outcome one = run(1, 1, micro_batch, BalanceScope::micro_batch, coef);
    for (const int64_t n : {2, 4})
      for (const int64_t dp : {1, 2})
        expect_same_router_gradient(run(n, dp, micro_batch, BalanceScope::micro_batch, coef), one, coef);
  }
}

TEST(Case15, TheGlobalScopeIsOneMicroBatchOfAllReplicas) {
  const Losses coef{1e-2, 0};
  const Outcome one = run(1, 1, 4, BalanceScope::micro_batch, coef);
  for (const int64_t n : {1, 2})
    for (const int64_t dp : {1, 2, 4})
      expect_same_router_gradient(run(n, dp, 4 / dp, BalanceScope::global, coef), one, coef);
}

}  // namespace
}  // namespace moesaic::test
