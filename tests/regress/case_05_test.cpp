// Case 5, top-k larger than the number of experts (flashinfer PR 3875). Right: k = 9, k = 0 and too few groups are refused;
// k = E chooses every expert once and equals a dense mixture on any layout.
#include "config/validate.h"
#include "support/setup_z.h"
#include "support/thrown.h"

namespace moesaic::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(Case05, ATopKThatCannotBeIsRefused) {
  Config c = setup_z();
  c.model.top_k = 9;
  EXPECT_THAT(message_of([&] { validate_values(c); }), AllOf(HasSubstr("model.top_k = 9"), HasSubstr("8")));
  c.model.top_k = 0;
  EXPECT_THAT(message_of([&] { validate_values(c); }), HasSubstr("model.top_k"));
  c.model.top_k = 5;
  c.model.router.num_groups = 4;
  c.model.router.num_groups_kept = 2;
  EXPECT_THAT(message_of([&] { validate_values(c); }),
              AllOf(HasSubstr("model.top_k = 5"), HasSubstr("4 experts")));
  // A run refuses it before anything is taken, on every rank alike.
  c.layout.n = 4;
  EXPECT_THAT(message_of([&] { run_layout(c, 1); }), HasSubstr("model.top_k = 5"));
}

TEST(Case05, AllExpertsChosenOnceEach) {
  Config c = setup_z();
  c.model.top_k = c.model.num_experts;
  const Outcome one = run_layout(c, 2);
  for (const auto& layer : one.steps[0].expert_load)
    EXPECT_THAT(layer, testing::Each(8 * 64));  // no expert twice for a token
  for (const Dispatch dispatch : {Dispatch::a2a, Dispatch::ag_rs})
    expect_same_training(run_layout(on_ranks(c, 4, dispatch), 2), one);
}

}  // namespace
}  // namespace moesaic::test
