// The rows bound: a step that passes it is repeated, loses rows, or ends the run, as configured.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/setup_z.h"
#include "support/thrown.h"
#include "support/train_run.h"

namespace moesaic {
namespace {

using namespace test;
using testing::Each;
using testing::HasSubstr;

/// Two ranks, no slack: any imbalance passes the bound.
Config tight(const TrainRun& run, const std::string& name, Dispatch dispatch) {
  Config c = run.config(name);
  c.layout.n = 2;
  c.layout.dispatch = dispatch;
  c.layout.rows_factor = 1;
  c.balance.aux_coef = 0;
  return c;
}

class RowsBound : public testing::TestWithParam<Dispatch> {};

TEST_P(RowsBound, ARepeatedStepIsTheStepWithALargeBoundToTheBit) {
  const TrainRun run;
  Config c = tight(run, "repeat", GetParam());
  c.train.eval_every = 2;
  run.train(c);
  EXPECT_GE(run.events("repeat", "repeat").size(), 1u);
  EXPECT_THAT(run.events("repeat", "repeat").front(), HasSubstr("step 0 is repeated: routing gave a rank"));
  c.run.name = "large";
  c.layout.rows_factor = 2;  // all rows of two ranks
  run.train(c);
  EXPECT_TRUE(run.events("large", "repeat").empty());
  EXPECT_EQ(all_tensors(run.checkpoint("repeat", 6)), all_tensors(run.checkpoint("large", 6)));
  const auto repeated = run.metrics("repeat"), large = run.metrics("large");
  ASSERT_EQ(repeated.size(), 6u);
  ASSERT_EQ(large.size(), 6u);
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(timeless(repeated[i]), timeless(large[i]));
}

TEST_P(RowsBound, OnlyGrowsAndAResumedRunStartsWithWhatItHad) {
  const TrainRun run;
  Config c = tight(run, "a", GetParam());
  run.train(c);
  const double factor = state_of(run.checkpoint("a", 6))["rows_factor"];
  EXPECT_GT(factor, 1);
  EXPECT_LE(factor, 2.2);
  int64_t before = 0;
  for (const auto& line : run.metrics("a")) {
    const int64_t bytes = line["memory_bytes"]["kept activations"];
    EXPECT_GE(bytes, before);
    before = bytes;
  }
  c.run.resume = "auto";
  c.train.steps = 7;
  run.train(c);
  EXPECT_GE(state_of(run.checkpoint("a", 7))["rows_factor"], factor);
  EXPECT_GE(run.metrics("a").back()["memory_bytes"]["kept activations"], before);
}

TEST_P(RowsBound, DropLeavesRowsOutAndGoesOn) {
  const TrainRun run;
  Config c = tight(run, "drop", GetParam());
  c.layout.on_overflow = OverflowPolicy::drop;
  c.train.eval_every = 1;
  const TrainSummary summary = run.train(c);
  EXPECT_EQ(summary.steps, 6);
  EXPECT_TRUE(run.events("drop", "repeat").empty());
  EXPECT_TRUE(run.events("drop", "skip").empty());
  EXPECT_EQ(state_of(run.checkpoint("drop", 6))["num_updates"], 6);
  EXPECT_EQ(state_of(run.checkpoint("drop", 6))["rows_factor"], 1.0)
      << "evaluation must not change the bound";
  c.run.name = "large";
  c.layout.rows_factor = 2;
  run.train(c);
  const auto dropped = run.metrics("drop"), large = run.metrics("large");
  EXPECT_NE(dropped.front()["loss"], large.front()["loss"]) << "rows were missing";
  EXPECT_EQ(dropped.front()["expert_load"][0], large.front()["expert_load"][0])
      << "the first layer routes the same";
  EXPECT_GT(dropped.front()["dropped"][0], 0);
  EXPECT_EQ(large.front()["dropped"][0], 0);
}

TEST_P(RowsBound, RowsLeftOutAreCountedPerLayerBesideThoseThatCapacityDropped) {
  // All 512 tokens of a step go to one rank, which takes 2 T K = 256 of them, in one micro-batch or in two.
  for (const int64_t micro_batch : {8, 4})
    for (const double capacity_factor :
         {0.0, 5.0, 2.0}) {  // room for 40 and for 16 of a sequence's 64 tokens
      Config c = on_ranks(setup_z(), 4, GetParam());
      steer_by_bias(c);
      c.model.top_k = 1;
      c.train.micro_batch = micro_batch;
      c.balance.capacity_factor = capacity_factor;
      c.layout.on_overflow = OverflowPolicy::drop;
      const int64_t over_capacity = capacity_factor == 0 ? 0 : capacity_factor == 5 ? 8 * 24 : 8 * 48;
      const int64_t dropped = std::max<int64_t>(over_capacity, 512 - 256);
      EXPECT_THAT(run_layout(c, 1, only_experts({5})).steps[0].dropped, Each(dropped));
      c.layout.on_overflow = OverflowPolicy::repeat;
      EXPECT_THAT(run_layout(c, 1, only_experts({5})).steps[0].dropped, Each(over_capacity));
    }
}

TEST_P(RowsBound, StopEndsTheRunWithTheNumbers) {
  const TrainRun run;
  Config c = tight(run, "stop", GetParam());
  c.layout.on_overflow = OverflowPolicy::stop;
  const std::string message = message_of<Error>([&] { run.train(c); });
  EXPECT_THAT(message, HasSubstr("step 0: routing gave a rank"));
  EXPECT_THAT(message, HasSubstr("above the bound of 32"));  // T*K = 2 * 16 / 2 * 2
  EXPECT_THAT(message, HasSubstr("layout.rows_factor (now 1)"));
}

INSTANTIATE_TEST_SUITE_P(Dispatches, RowsBound, testing::Values(Dispatch::a2a, Dispatch::ag_rs),
                         [](const auto& one) { return one.param == Dispatch::a2a ? "a2a" : "ag_rs"; });

}  // namespace
}  // namespace moesaic
