// Case 25, key/value heads fewer than the SP degree (verl 1226, prime-rl PR 3042, vllm-omni PR 5716): heads are split over ranks, so
// key/value heads are repeated and their gradients summed over the copies. Right: equals SP 1, or is refused with the reason.
#include "support/setup_z.h"
#include "support/thrown.h"

namespace moesaic::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(Case25, RepeatedKeyValueHeadsGiveTheGradientsOfOneRank) {
  for (const int64_t kv_heads : {1, 2, 4})
    for (const bool qk_norm : {false, true}) {
      Config c = setup_z();
      c.model.num_kv_heads = kv_heads;
      c.model.qk_norm = qk_norm;
      const Outcome one = run_layout(c, 1);
      for (const int64_t n : {4, 8}) {
        SCOPED_TRACE(fmt::format("{} key/value heads on {} ranks", kv_heads, n));
        const Outcome many = run_layout(on_ranks(c, n), 1);
        for (int64_t layer = 0; layer < 4; ++layer)
          for (const char* w : {"q", "k", "v"}) {
            const std::string name = fmt::format("layers.{}.attention.{}", layer, w);
            EXPECT_LT(relative_error(many.gradients.at(name), one.gradients.at(name)), 1e-4) << name;
          }
        expect_same_training(many, one);
      }
    }
}

TEST(Case25, WhatDoesNotDivideIsRefusedWithTheReason) {
  Config c = setup_z();
  c.model.num_heads = 28, c.model.num_kv_heads = 7;
  EXPECT_THAT(message_of([&] { run_layout(on_ranks(c, 2), 1); }),
              AllOf(HasSubstr("layout.n = 2"), HasSubstr("model.num_kv_heads = 7")));
  c = setup_z();
  c.train.seq_len = 63;
  EXPECT_THAT(message_of([&] { run_layout(on_ranks(c, 4), 1); }),
              AllOf(HasSubstr("layout.n = 4"), HasSubstr("train.seq_len = 63")));
}

}  // namespace
}  // namespace moesaic::test
