// Case 18, recompute counts tokens and losses twice (torchtitan PR 1593, Megatron-LM PR 1331): the forward pass runs again in the
// backward pass. Right: the same counters, logged aux loss and bias update under every rebuild policy; evaluation does not count.
#include "support/setup_z.h"

namespace moesaic::test {
namespace {

TEST(Case18, RebuildingAndEvaluatingCountNothing) {
  Config c = setup_z();
  c.model.router.selection_bias = true;
  c.model.router.bias_rate = 0.01;
  c.balance.z_coef = 1e-3;
  const Outcome plain = run_layout(c, 3);
  const int64_t tokens = c.train.global_batch * c.train.seq_len;
  for (const int64_t n : {1, 2})
    for (const Rebuild rebuild : {Rebuild::none, Rebuild::selective, Rebuild::full}) {
      Config d = on_ranks(c, n);
      d.layout.rebuild = rebuild;
      Around around;
      around.between = [&](Session& session) {
        const auto result = session.evaluate(
            [&](std::span<const int64_t> numbers) {
              return random_batch(numbers, d.train.seq_len, d.model.vocab);
            },
            11);
        EXPECT_GT(result.counted, 0);
      };
      const Outcome run = run_layout(d, 3, around);
      expect_same_training(run, plain);
      for (const StepResult& step : run.steps)
        for (const auto& load : step.expert_load) {
          int64_t sum = 0;
          for (int64_t count : load) sum += count;
          EXPECT_EQ(sum, tokens * c.model.top_k);
        }
      EXPECT_THAT(different(run.biases, plain.biases), testing::IsEmpty());
      EXPECT_GT(norm_of(run.biases.begin()->second), 0);
    }
}

}  // namespace
}  // namespace moesaic::test
