// Case 2, a whole rank gets zero tokens (Megatron-LM PR 4851, DeepSpeed 4808 and 5066): expert code was skipped there, so ranks
// ran different collectives. Right: the result of one rank; a collective that differs would end the job by name.
#include "support/setup_z.h"

namespace moesaic::test {
namespace {

TEST(Case02, ARankWithoutTokensTakesPartInEverything) {
  Config c = setup_z();
  steer_by_bias(c);
  c.optim.kind = OptimizerKind::adamw;
  c.optim.eps = 1e-4;
  const Around around = only_experts({0, 1});  // of rank 0, with 4 ranks and with 2
  const Outcome one = run_layout(c, 2, around);
  for (const int64_t n : {2, 4})
    for (const int64_t dp : {1, 2})
      for (const Dispatch dispatch : {Dispatch::a2a, Dispatch::ag_rs})
        for (const ReplayMode mode : {ReplayMode::inline_, ReplayMode::chaos}) {  // without and with overlap
          SCOPED_TRACE(fmt::format("n {} dp {} dispatch {} mode {}", n, dp, static_cast<int>(dispatch),
                                   static_cast<int>(mode)));
          Config d = on_ranks(c, n, dispatch);
          d.layout.dp = dp;
          d.train.micro_batch = 8 / dp;
          d.run.replay = mode;
          expect_same_training(run_layout(d, 2, around), one);
        }
}

}  // namespace
}  // namespace moesaic::test
