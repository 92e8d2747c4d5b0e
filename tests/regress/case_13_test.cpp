// Case 13, the aux loss never reaches the router (AutoModel 1408 and PR 1412): the returned tensor was thrown away, and the
// coefficient acted only as a switch. Right: with the main loss multiplied by zero and coefficients 0, 1e-3, 1e-2, the router's
// gradient is 0, g, 10 g.
#include "support/setup_z.h"

namespace moesaic::test {
namespace {

TEST(Case13, TheRoutersGradientIsProportionalToTheCoefficient) {
  for (const int64_t n : {1, 4})
    for (const BalanceScope scope :
         {BalanceScope::sequence, BalanceScope::micro_batch, BalanceScope::global}) {
      std::vector<Outcome> runs;
      for (const double coef : {0.0, 1e-3, 1e-2}) {
        Config c = on_ranks(setup_z(), n);
        c.balance.scope = scope;
        c.balance.aux_coef = coef;
        runs.push_back(run_layout(c, 1, {.source = uncounted(c)}));
        EXPECT_EQ(runs.back().steps[0].loss, 0);
      }
      EXPECT_NEAR(runs[2].steps[0].aux_loss, 10 * runs[1].steps[0].aux_loss,
                  1e-5 * runs[2].steps[0].aux_loss);
      for (int64_t layer = 0; layer < 4; ++layer) {
        const double none = norm_of(runs[0].gradients.at(router_of(layer))),
                     one = norm_of(runs[1].gradients.at(router_of(layer))),
                     ten = norm_of(runs[2].gradients.at(router_of(layer)));
        EXPECT_EQ(none, 0);
        EXPECT_GT(one, 1e-9);
        EXPECT_NEAR(ten / one, 10, 1e-3);
      }
    }
}

}  // namespace
}  // namespace moesaic::test
