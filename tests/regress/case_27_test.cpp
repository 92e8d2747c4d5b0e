// Resuming or resharding must not change a run. Megatron-LM 761, 1517: expert optimizer state was loaded wrongly.
// KempnerForge 202: every rank wrote the same local expert names, so only one rank's experts were in the file.
#include <gtest/gtest.h>

#include "support/train_run.h"

namespace moesaic {
namespace {

using namespace test;

struct Change {
  const char* name;
  LayoutConfig from, to;
};

LayoutConfig layout(int64_t dp, int64_t n, int64_t e = 0) {
  LayoutConfig l;
  l.dp = dp, l.n = n, l.e = e;
  return l;
}

class Case27 : public testing::TestWithParam<Change> {};

TEST_P(Case27, AnotherLayoutGoesOnWithTheSameRun) {
  const TrainRun run;
  Config c = run.config("whole");
  c.layout = GetParam().from;
  c.train.save_every = 3;
  run.train(c);
  c.layout = GetParam().to;
  c.run.name = "resumed";
  c.run.resume = run.checkpoint("whole", 3);
  run.train(c);

  // What was loaded is what was saved, to the bit: a run of no steps saves it again.
  c.run.name = "loaded";
  const StopFlag stop{1};
  train(c, stop, run.null());
  EXPECT_EQ(all_tensors(run.checkpoint("loaded", 3)), all_tensors(run.checkpoint("whole", 3)));
  EXPECT_EQ(state_of(run.checkpoint("loaded", 3)), state_of(run.checkpoint("whole", 3)));

  const auto whole = run.metrics("whole"), resumed = run.metrics("resumed");
  ASSERT_EQ(resumed.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(resumed[i]["step"], i + 3);
    EXPECT_NEAR(resumed[i]["loss"], whole[i + 3]["loss"], 1e-5 * whole[i + 3]["loss"].get<double>());
    EXPECT_NEAR(resumed[i]["grad_norm"], whole[i + 3]["grad_norm"],
                1e-4 * whole[i + 3]["grad_norm"].get<double>());
    EXPECT_EQ(resumed[i]["lr"], whole[i + 3]["lr"]);
    EXPECT_EQ(resumed[i]["expert_load"], whole[i + 3]["expert_load"]);
  }
  EXPECT_EQ(state_of(run.checkpoint("whole", 6)), state_of(run.checkpoint("resumed", 6)));
  const auto [error, name] =
      worst(float_tensors(run.checkpoint("resumed", 6)), float_tensors(run.checkpoint("whole", 6)));
  EXPECT_LT(error, 1e-3) << name;
}

INSTANTIATE_TEST_SUITE_P(Layouts, Case27,
                         testing::Values(Change{"ep4_to_1", layout(1, 4), layout(1, 1)},
                                         Change{"1_to_2", layout(1, 1), layout(1, 2)},
                                         Change{"dp2_to_dp4", layout(2, 1), layout(4, 1)},
                                         Change{"ep4_of_dp2_to_ep1_of_dp4", layout(2, 2, 4),
                                                layout(4, 1, 1)}),
                         [](const auto& one) { return one.param.name; });

TEST(Case27File, HoldsEveryExpertOnceAndAllOfItsState) {
  const TrainRun run;
  Config c = run.config("a");
  c.layout = layout(1, 4);
  run.train(c);
  std::map<std::string, std::set<std::string>> names;  // by kind
  const CheckpointReader reader(run.checkpoint("a", 6));
  for (const StoredPiece& piece : reader.pieces()) names[piece.kind].insert(piece.name);
  for (const char* kind : {"weight", "exp_avg", "exp_avg_sq"})
    for (int64_t i = 0; i < c.model.num_layers; ++i)
      for (int64_t e = 0; e < c.model.num_experts; ++e)
        for (const char* w : {"w1", "w2", "w3"})
          EXPECT_TRUE(names[kind].contains(fmt::format("layers.{}.experts.{}.{}", i, e, w)))
              << kind << i << e << w;
  EXPECT_EQ(names["router_bias"].size(), 2u);
  EXPECT_EQ(names["weight"], names["exp_avg"]);
  // Two experts never hold the same numbers: each was trained, and saved under its own name.
  const auto tensors = all_tensors(run.checkpoint("a", 6));
  std::set<std::string> distinct;
  for (int64_t e = 0; e < c.model.num_experts; ++e) {
    distinct.insert(tensors.at(fmt::format("weight/layers.0.experts.{}.w1", e)));
    distinct.insert(tensors.at(fmt::format("exp_avg/layers.0.experts.{}.w1", e)));
  }
  EXPECT_EQ(static_cast<int64_t>(distinct.size()), 2 * c.model.num_experts);
}

}  // namespace
}  // namespace moesaic
