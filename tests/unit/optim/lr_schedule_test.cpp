#include "optim/lr_schedule.h"

#include <gtest/gtest.h>

#include <cmath>

namespace moesaic {
namespace {

OptimConfig config(DecaySchedule decay) {
  OptimConfig o;
  o.lr = 1e-2, o.min_lr = 1e-3, o.warmup_steps = 10, o.decay = decay;
  return o;
}

double at(const OptimConfig& o, int64_t step, int64_t steps) {
  return learning_rate(o, step, steps, static_cast<double>(step) / static_cast<double>(steps));
}

TEST(LrSchedule, WarmUpIsLinearAndItsFirstStepAlreadyLearns) {
  const OptimConfig o = config(DecaySchedule::constant);
  EXPECT_DOUBLE_EQ(at(o, 0, 100), 1e-3);
  EXPECT_DOUBLE_EQ(at(o, 4, 100), 5e-3);
  EXPECT_DOUBLE_EQ(at(o, 9, 100), 1e-2);
  EXPECT_DOUBLE_EQ(at(o, 99, 100), 1e-2);
}

TEST(LrSchedule, WithoutWarmUpTheFirstStepHasTheFullRate) {
  OptimConfig o = config(DecaySchedule::cosine);
  o.warmup_steps = 0;
  EXPECT_DOUBLE_EQ(at(o, 0, 100), o.lr);
}

TEST(LrSchedule, CosineFallsFromPeakThroughTheMiddleToTheMinimum) {
  OptimConfig o = config(DecaySchedule::cosine);
  o.warmup_steps = 0;
  EXPECT_NEAR(at(o, 50, 100), (o.lr + o.min_lr) / 2, 1e-15);
  EXPECT_DOUBLE_EQ(at(o, 100, 100), o.min_lr);
  for (int64_t step = 0; step < 100; ++step) EXPECT_GT(at(o, step, 100), at(o, step + 1, 100)) << step;
  EXPECT_NEAR(at(o, 99, 100), o.min_lr, 1e-5) << "the last step of a run is almost there";
}

TEST(LrSchedule, AWarmUpLongerThanTheRunStaysBelowTheDecay) {
  for (const DecaySchedule decay : {DecaySchedule::cosine, DecaySchedule::wsd}) {
    OptimConfig o = config(decay);
    o.warmup_steps = 50;
    for (int64_t step = 0; step < 10; ++step) {
      const double rate = at(o, step, 10);
      EXPECT_GT(rate, 0) << step;
      EXPECT_LE(rate, o.lr * static_cast<double>(step + 1) / 50 * (1 + 1e-12)) << step;
    }
  }
}

TEST(LrSchedule, WsdIsFlatAndThenLinearOverItsLastSteps) {
  OptimConfig o = config(DecaySchedule::wsd);
  o.decay_steps = 40;
  EXPECT_DOUBLE_EQ(at(o, 10, 100), o.lr);
  EXPECT_DOUBLE_EQ(at(o, 59, 100), o.lr);
  EXPECT_NEAR(at(o, 80, 100), (o.lr + o.min_lr) / 2, 1e-15);
  EXPECT_DOUBLE_EQ(at(o, 100, 100), o.min_lr);
}

TEST(LrSchedule, WsdDecaysOverTheLastFifthWhereNothingElseIsSaid) {
  const OptimConfig o = config(DecaySchedule::wsd);
  EXPECT_DOUBLE_EQ(at(o, 79, 100), o.lr);
  EXPECT_NEAR(at(o, 90, 100), (o.lr + o.min_lr) / 2, 1e-15);
}

TEST(LrSchedule, ARunLimitedInTimeDecaysByTimeAlone) {
  OptimConfig o = config(DecaySchedule::cosine);
  o.warmup_steps = 0;
  EXPECT_DOUBLE_EQ(learning_rate(o, 3, 1000000, 1.0), o.min_lr);
  EXPECT_DOUBLE_EQ(learning_rate(o, 3, 1000000, 1.7), o.min_lr)
      << "a last step that takes longer than what was left";
}

}  // namespace
}  // namespace moesaic
