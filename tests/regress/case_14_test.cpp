// Case 14, the aux loss grows with gradient accumulation (AutoModel PR 3359): each micro-batch added a full aux gradient. Right:
// 8 identical sequences give the same router gradient as 1 x 8, 2 x 4 and 8 x 1 micro-batches.
#include "support/setup_z.h"

namespace moesaic::test {
namespace {

TEST(Case14, IdenticalSequencesGiveTheSameRouterGradientInAnyMicroBatches) {
  for (const bool counted : {false, true})
    for (const BalanceScope scope : {BalanceScope::sequence, BalanceScope::micro_batch, BalanceScope::global})
      for (const int64_t n : {1, 2}) {
        std::vector<Outcome> runs;
        for (const int64_t micro_batch : {8, 4, 1}) {
          Config c = on_ranks(setup_z(), n);
          c.balance.scope = scope;
          c.balance.z_coef = 1e-3;
          c.train.micro_batch = micro_batch;
          const BatchSource random = uncounted(c);
          runs.push_back(run_layout(c, 1, {.source = [&](std::span<const int64_t> positions) {
                                      const std::vector<int64_t> same(positions.size(), 0);
                                      return counted ? random_batch(same, c.train.seq_len, c.model.vocab)
                                                     : random(same);
                                    }}));
        }
        for (size_t i : {1, 2}) {
          EXPECT_NEAR(runs[i].steps[0].aux_loss, runs[0].steps[0].aux_loss, 1e-5 * runs[0].steps[0].aux_loss);
          EXPECT_NEAR(runs[i].steps[0].z_loss, runs[0].steps[0].z_loss, 1e-5 * runs[0].steps[0].z_loss);
          for (int64_t layer = 0; layer < 4; ++layer)
            EXPECT_LT(relative_error(runs[i].gradients.at(router_of(layer)),
                                     runs[0].gradients.at(router_of(layer))),
                      1e-4);
        }
      }
}

}  // namespace
}  // namespace moesaic::test
