// Case 24, few or short micro-batches (torchtitan 775, pytorch 126600, NeMo 14288), as far as accumulation goes: any number of
// micro-batches equals one, a last short one is refused with the rule in words, and sequence lengths may differ from run to run.
#include "support/setup_z.h"
#include "support/thrown.h"

namespace moesaic::test {
namespace {

TEST(Case24, AnyNumberOfMicroBatchesEqualsOne) {
  for (const int64_t seq_len : {16, 64}) {
    Config c = setup_z();
    c.train.seq_len = seq_len;
    const Outcome one = run_layout(c, 2);
    for (const int64_t micro_batch : {1, 2, 4})
      for (const int64_t n : {1, 2}) {
        Config d = on_ranks(c, n);
        d.train.micro_batch = micro_batch;
        expect_same_training(run_layout(d, 2), one);
      }
  }
}

TEST(Case24, ThreeMicroBatchesEqualOne) {
  Config c = setup_z();
  c.train.global_batch = c.train.micro_batch = 6;
  const Outcome one = run_layout(c, 2);
  c.train.micro_batch = 2;
  expect_same_training(run_layout(c, 2), one);
}

TEST(Case24, AShortLastMicroBatchIsRefused) {
  Config c = setup_z();
  c.train.micro_batch = 3;
  EXPECT_THAT(message_of([&] { run_layout(c, 1); }),
              testing::AllOf(testing::HasSubstr("train.global_batch = 8"), testing::HasSubstr("= 3"),
                             testing::HasSubstr("whole micro-batches")));
}

}  // namespace
}  // namespace moesaic::test
