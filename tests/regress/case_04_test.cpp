// Case 4, experts not divisible by the ranks that share them, or those not dividing the ranks (torchtitan PR 4258, DeepSpeed PR
// 7551). Right: refused on every rank alike before any memory is taken, with both numbers; what divides runs.
#include "support/setup_z.h"
#include "support/thrown.h"

namespace moesaic::test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

/// What each of four ranks says about a configuration.
std::vector<std::string> refusals(const Config& c) {
  std::vector<std::string> messages(4);
  run_ranks(c.run, 4, [&](Rank& rank) {
    messages[static_cast<size_t>(rank.rank)] = message_of([&] { const Session session(c, rank); });
    EXPECT_EQ(rank.device->arena().high_water(), 0);
  });
  return messages;
}

TEST(Case04, ExpertsThatTheRanksCannotShareEvenlyAreRefusedByAllOfThem) {
  Config c = setup_z();
  c.layout.n = c.layout.e = 4;
  c.model.num_experts = 6;
  EXPECT_THAT(refusals(c), Each(AllOf(HasSubstr("layout.e = 4"), HasSubstr("model.num_experts = 6"))));
}

TEST(Case04, ExpertRanksThatDoNotDivideTheRanksAreRefusedByAllOfThem) {
  Config c = setup_z();
  c.layout.n = 4, c.layout.e = 3;
  c.model.num_experts = 6;
  EXPECT_THAT(refusals(c), Each(AllOf(HasSubstr("layout.e = 3"), HasSubstr("4"))));
}

TEST(Case04, SixteenExpertsOnTwoRanksRun) {
  Config c = setup_z();
  c.model.num_experts = 16;
  const Outcome one = run_layout(c, 2);
  expect_same_training(run_layout(on_ranks(c, 2, Dispatch::a2a), 2), one);
}

}  // namespace
}  // namespace moesaic::test
