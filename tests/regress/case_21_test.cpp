// Case 21, loss averaging with ignored tokens (torchtitan 1842 and PR 2206, transformers 34242): a mean per rank and micro-batch, then a
// mean of means. Right: global sum over global count; a count of zero gives loss 0, no NaN, no update.
#include "support/setup_z.h"

namespace moesaic::test {
namespace {

/// Sequences with this many counted targets each.
BatchSource counting(const Config& c, const std::vector<int64_t>& counts) {
  return [S = c.train.seq_len, V = c.model.vocab, counts](std::span<const int64_t> positions) {
    Batch batch = random_batch(positions, S, V);
    batch.num_counted = 0;
    for (size_t b = 0; b < positions.size(); ++b) {
      int64_t left = counts[static_cast<size_t>(positions[b]) % counts.size()];
      for (int64_t s = 0; s < S; ++s) {
        int32_t& target = batch.targets[b * static_cast<size_t>(S) + static_cast<size_t>(s)];
        const bool counts_here = left > 0 && s % 7 == 3;
        if (counts_here && target < 0) target = 1;
        if (!counts_here) target = -1;
        left -= counts_here, batch.num_counted += counts_here;
      }
    }
    return batch;
  };
}

TEST(Case21, TheLossIsTheGlobalSumOverTheGlobalCount) {
  Config c = setup_z();
  c.balance.aux_coef = 0;
  c.train.global_batch = 4;
  c.train.micro_batch = 4;
  for (const std::vector<int64_t>& counts : std::vector<std::vector<int64_t>>{
           {3, 2, 1, 0},     // the first replica has 5, the second 1
           {5, 0, 0, 1}}) {  // with one sequence at a time, whole micro-batches have 0
    const Outcome one = run_layout(c, 2, {.source = counting(c, counts)});
    EXPECT_EQ(one.steps[0].counted, 6);
    for (const int64_t n : {1, 2})
      for (const int64_t dp : {1, 2, 4})
        for (const int64_t micro_batch : {1, 2}) {
          if (dp * micro_batch > 4) continue;
          SCOPED_TRACE(fmt::format("n {} dp {} micro-batch {}", n, dp, micro_batch));
          Config d = on_ranks(c, n);
          d.layout.dp = dp;
          d.train.micro_batch = micro_batch;
          const Outcome many = run_layout(d, 2, {.source = counting(d, counts)});
          EXPECT_EQ(many.steps[0].counted, 6);
          expect_same_training(many, one);
        }
  }
}

TEST(Case21, WithoutACountedTokenNothingHappens) {
  for (const int64_t n : {1, 2}) {
    Config c = on_ranks(setup_z(), n);
    c.layout.dp = 2;
    c.train.micro_batch = 2;
    c.optim.kind = OptimizerKind::adamw;
    const Outcome run = run_layout(c, 2, {.source = counting(c, {0})});
    for (const StepResult& step : run.steps) {
      EXPECT_EQ(step.loss, 0);
      EXPECT_EQ(step.counted, 0);
      EXPECT_FALSE(step.updated);
      EXPECT_TRUE(std::isfinite(step.grad_norm));
    }
    for (const auto& [name, update] : run.updates) EXPECT_EQ(norm_of(update), 0) << name;
  }
}

}  // namespace
}  // namespace moesaic::test
