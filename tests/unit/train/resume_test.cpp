#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "support/thrown.h"
#include "support/train_run.h"

namespace moesaic {
namespace {

using namespace test;
using testing::ElementsAre;
using testing::HasSubstr;

Config two_by_two(const TrainRun& run, const std::string& name) {
  Config c = run.config(name);
  c.layout.n = c.layout.dp = 2;
  return c;
}

void expect_same_checkpoints(const std::string& a, const std::string& b) {
  EXPECT_EQ(state_of(a), state_of(b));
  const auto left = all_tensors(a), right = all_tensors(b);
  ASSERT_EQ(left.size(), right.size());
  for (const auto& [name, bytes] : left) EXPECT_TRUE(right.contains(name) && bytes == right.at(name)) << name;
}

void expect_same_lines(const TrainRun& run, const std::string& a, const std::string& b, size_t first = 0) {
  const auto left = run.metrics(a), right = run.metrics(b);
  ASSERT_EQ(left.size(), right.size() + first);
  for (size_t i = first; i < left.size(); ++i) EXPECT_EQ(timeless(left[i]), timeless(right[i - first]));
}

struct Numbers {
  const char* name;
  ComputeType compute;
  OptimizerKind optimizer;
};

class Resume : public testing::TestWithParam<Numbers> {};

TEST_P(Resume, OnTheSameLayoutIsBitEqual) {
  const TrainRun run;
  Config c = two_by_two(run, "whole");
  c.train.compute = GetParam().compute;
  c.optim.kind = GetParam().optimizer;
  c.optim.momentum = 0.9;
  c.train.save_every = 3;
  c.train.eval_every = 2;
  c.train.eval_sequences = 5;
  run.train(c);
  c.run.name = "resumed";
  c.run.resume = run.checkpoint("whole", 3);
  const TrainSummary summary = run.train(c);
  EXPECT_EQ(summary.steps, 6);
  expect_same_lines(run, "whole", "resumed", 3);
  expect_same_checkpoints(run.checkpoint("whole", 6), run.checkpoint("resumed", 6));
  // The test sees differences: what was trained on differs from what was saved.
  EXPECT_NE(all_tensors(run.checkpoint("whole", 3)), all_tensors(run.checkpoint("whole", 6)));
  EXPECT_EQ(state_of(run.checkpoint("whole", 6))["data_position"], 48);
}

INSTANTIATE_TEST_SUITE_P(Numbers, Resume,
                         testing::Values(Numbers{"f32_adamw", ComputeType::f32, OptimizerKind::adamw},
                                         Numbers{"f32_momentum", ComputeType::f32, OptimizerKind::sgd},
                                         Numbers{"bf16_adamw", ComputeType::bf16, OptimizerKind::adamw},
                                         Numbers{"bf16_momentum", ComputeType::bf16, OptimizerKind::sgd}),
                         [](const auto& one) { return one.param.name; });

TEST(ResumeRun, TheDataGoOnWhereTheyWereWhenTheBatchChanges) {
  const TrainRun run;
  Config c = run.config("small");
  c.train.steps = 3;
  run.train(c);  // 24 sequences
  c.train.global_batch = 4;
  c.train.steps = 5;
  c.run.resume = "auto";
  run.train(c);
  EXPECT_EQ(state_of(run.checkpoint("small", 5))["data_position"], 24 + 2 * 4);
}

TEST(ResumeRun, AStopSavesAndTheResumedRunEndsAsTheWholeOne) {
  const TrainRun run;
  Config c = two_by_two(run, "whole");
  c.train.steps = 60;
  run.train(c);
  c.run.name = "stopped";
  StopFlag stop{0};
  std::thread watcher([&] {  // as a person who reads the log and presses Ctrl-C
    const std::string path = run.folder() / "runs/stopped/metrics.jsonl";
    for (int i = 0; i < 20000; ++i) {
      const std::string text = slurp(path);
      if (std::count(text.begin(), text.end(), '\n') >= 3) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    stop = 1;
  });
  const TrainSummary first = moesaic::train(c, stop, run.null());
  watcher.join();
  ASSERT_TRUE(first.interrupted);
  ASSERT_GE(first.steps, 3);
  ASSERT_LT(first.steps, 60);
  EXPECT_EQ(first.checkpoint, run.checkpoint("stopped", first.steps));
  EXPECT_EQ(run.metrics("stopped").size(), static_cast<size_t>(first.steps));
  EXPECT_THAT(run.events("stopped", "stop"), ElementsAre("interrupted"));
  c.run.resume = "auto";
  const TrainSummary second = run.train(c);
  EXPECT_FALSE(second.interrupted);
  EXPECT_EQ(second.steps, 60);
  EXPECT_GT(second.seconds, first.seconds);
  expect_same_lines(run, "whole", "stopped");
  expect_same_checkpoints(run.checkpoint("whole", 60), run.checkpoint("stopped", 60));
}

TEST(ResumeRun, LinesAfterTheCheckpointAreWrittenAnewNotTwice) {
  const TrainRun run;
  Config c = two_by_two(run, "a");
  c.train.save_every = 2;
  run.train(c);
  const auto before = run.metrics("a");
  remove_tree(run.checkpoint("a", 6));  // as if the process had been killed after step 6, before it was saved
  c.run.resume = "auto";
  run.train(c);
  const auto after = run.metrics("a");
  ASSERT_EQ(after.size(), 6u);
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(after[i]["step"], i);
    EXPECT_EQ(timeless(after[i]), timeless(before[i]));
  }
  EXPECT_THAT(run.events("a", "restart"),
              ElementsAre(HasSubstr("resumed at step 4 from " + run.checkpoint("a", 4))));
}

TEST(ResumeRun, AFinishedRunHasNothingToDoAndChangesNothing) {
  const TrainRun run;
  Config c = run.config("a");
  run.train(c);
  const std::string manifest = slurp(run.checkpoint("a", 6) + "/manifest.json");
  c.run.resume = "auto";
  const TrainSummary summary = run.train(c);
  EXPECT_EQ(summary.steps, 6);
  EXPECT_FALSE(summary.loss.has_value());
  EXPECT_EQ(summary.checkpoint, run.checkpoint("a", 6));
  EXPECT_EQ(slurp(run.checkpoint("a", 6) + "/manifest.json"), manifest);
  EXPECT_EQ(run.metrics("a").size(), 6u);
}

TEST(ResumeRun, ATimeLimitEndsTheRunAndItsDecay) {
  const TrainRun run;
  Config c = run.config("timed");
  c.train.steps = 1000000;
  c.train.max_seconds = 2;
  const TrainSummary summary = run.train(c);
  EXPECT_GE(summary.steps, 2);
  EXPECT_LT(summary.steps, 1000000);
  EXPECT_GE(summary.seconds, 2);
  const auto lines = run.metrics("timed");
  ASSERT_EQ(static_cast<int64_t>(lines.size()), summary.steps);
  EXPECT_LT(lines.back()["lr"], c.optim.lr) << "decayed by time";
  EXPECT_GE(lines.back()["lr"], c.optim.min_lr);
  EXPECT_EQ(state_of(summary.checkpoint)["step"], summary.steps);
  c.run.resume = "auto";
  EXPECT_EQ(run.train(c).steps, summary.steps) << "its time is over";
  c.train.max_seconds = 3.2;
  EXPECT_GT(run.train(c).steps, summary.steps);
}

void damage(const std::string& path) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(-5, std::ios::end);
  const char old = static_cast<char>(file.get());
  file.seekp(-5, std::ios::end);
  file.put(static_cast<char>(old ^ 1));
}

TEST(DamagedCheckpoint, AutoPassesOverItForTheNewestWholeOneAndSaysSo) {
  const TrainRun run;
  Config c = two_by_two(run, "a");
  c.train.save_every = 1;
  run.train(c);
  damage(run.checkpoint("a", 6) + "/rank_00001.safetensors");  // right size, wrong bytes
  remove_tree(run.checkpoint("a", 5) + "/rank_00002.safetensors");
  c.run.resume = "auto";
  testing::internal::CaptureStderr();
  run.train(c);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr(run.checkpoint("a", 6) + "/rank_00001.safetensors"));
  EXPECT_THAT(said, HasSubstr(run.checkpoint("a", 5)));
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 2) << "one rank speaks, a line for each:\n" << said;
  EXPECT_THAT(run.events("a", "restart"), ElementsAre(HasSubstr("from " + run.checkpoint("a", 4))));
  EXPECT_EQ(run.metrics("a").size(), 6u);
}

TEST(DamagedCheckpoint, NamedExplicitlyIsRefusedOnEveryRank) {
  const TrainRun run;
  const Config c = two_by_two(run, "a");
  run.train(c);
  const std::string bad = run.checkpoint("a", 6);
  damage(bad + "/rank_00003.safetensors");
  std::atomic<int> refused{0};
  run_ranks(c.run, 4, [&](Rank& rank) {
    try {
      agree_on_checkpoint(rank.control, bad);
    } catch (const IoError& error) {
      if (std::string(error.what()).find("rank_00003.safetensors") != std::string::npos) ++refused;
    }
  });
  EXPECT_EQ(refused, 4);
  Config again = c;
  again.run.name = "b";
  again.run.resume = bad;
  EXPECT_THAT(message_of<IoError>([&] { run.train(again); }), HasSubstr("rank_00003.safetensors"));
  EXPECT_THAT(message_of<IoError>([&] { evaluate_checkpoint(c, bad, 0); }),
              HasSubstr("rank_00003.safetensors"));
}

TEST(DamagedCheckpoint, NoneLeftIsAnErrorThatNamesTheRun) {
  const TrainRun run;
  Config c = two_by_two(run, "a");
  run.train(c);
  damage(run.checkpoint("a", 6) + "/rank_00000.safetensors");
  c.run.resume = "auto";
  testing::internal::CaptureStderr();
  const std::string message = message_of<IoError>([&] { run.train(c); });
  testing::internal::GetCapturedStderr();
  EXPECT_THAT(message, HasSubstr("runs/a is neither a checkpoint nor a run folder that holds a whole one"));
}

}  // namespace
}  // namespace moesaic
