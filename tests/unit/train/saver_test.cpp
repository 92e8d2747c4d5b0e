// Saving beside training: the run is the one without saves, and each checkpoint is the step that it names, however slow the
// disk is; what fails is told to all, and leaves nothing.
#include "train/saver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "support/path_files.h"
#include "support/thrown.h"
#include "support/train_run.h"

namespace moesaic {
namespace {

using namespace test;
using testing::ElementsAre;
using testing::HasSubstr;

int64_t num_lines(const TrainRun& run, const std::string& name) {
  const std::string text = slurp(run.folder() / ("runs/" + name + "/metrics.jsonl"));
  return std::count(text.begin(), text.end(), '\n');
}

/// Waits until a run has reported `count` steps; false when it has not within 30 s.
bool wait_for_lines(const TrainRun& run, const std::string& name, int64_t count) {
  for (int i = 0; i < 30000 && num_lines(run, name) < count; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return num_lines(run, name) >= count;
}

void expect_same_checkpoints(const std::string& a, const std::string& b) {
  EXPECT_EQ(state_of(a), state_of(b));
  EXPECT_TRUE(all_tensors(a) == all_tensors(b)) << a << " and " << b;
}

void expect_same_lines(const TrainRun& run, const std::string& a, const std::string& b, size_t first = 0) {
  const auto left = run.metrics(a), right = run.metrics(b);
  ASSERT_EQ(left.size(), right.size() + first);
  for (size_t i = first; i < left.size(); ++i) EXPECT_EQ(timeless(left[i]), timeless(right[i - first]));
}

class AsyncSave : public testing::TestWithParam<ComputeType> {};

TEST_P(AsyncSave, ChangesNoBitOfTheRunAndSavesTheStepThatItNames) {
  const TrainRun run;
  Config c = run.config("without");
  c.layout.n = c.layout.dp = 2;
  c.train.compute = GetParam();
  run.train(c);

  c.train.save_every = 2;
  c.run.name = "waits";
  c.train.save_async = false;
  run.train(c);

  // Both ranks' shards of step 2 are held back until two more steps have been done.
  c.run.name = "beside";
  c.train.save_async = true;
  std::atomic<int> held{0};
  PathFiles files([&](const std::string& path) {
    if (contains(path, "beside/checkpoints/step_00000002.tmp/rank_"))
      held += wait_for_lines(run, "beside", 4);
    return 0;
  });
  {
    const ReplacedFileSystem in_force(files);
    run.train(c);
  }
  EXPECT_EQ(held, 4) << "the save was under way while training went on, on every rank";
  expect_same_lines(run, "without", "beside");
  expect_same_checkpoints(run.checkpoint("without", 6), run.checkpoint("beside", 6));
  EXPECT_THAT(
      run.events("beside", "save"),
      ElementsAre(HasSubstr("saved step 2 "), HasSubstr("saved step 4 "), HasSubstr("saved step 6 ")));
  for (const int64_t step : {2, 4}) {
    expect_same_checkpoints(run.checkpoint("waits", step), run.checkpoint("beside", step));
    c.run.name = fmt::format("resumed{}", step);
    c.run.resume = run.checkpoint("beside", step);
    run.train(c);
    expect_same_lines(run, "without", c.run.name, static_cast<size_t>(step));
    expect_same_checkpoints(run.checkpoint("without", 6), run.checkpoint(c.run.name, 6));
  }
  EXPECT_NE(all_tensors(run.checkpoint("beside", 2)), all_tensors(run.checkpoint("beside", 4)));
}

INSTANTIATE_TEST_SUITE_P(Types, AsyncSave, testing::Values(ComputeType::f32, ComputeType::bf16),
                         [](const auto& type) { return type.param == ComputeType::f32 ? "f32" : "bf16"; });

TEST(Save, WithoutSaveAsyncIsOverBeforeTheNextStep) {
  const TrainRun run;
  Config c = run.config("a");
  c.train.save_every = 2;
  c.train.save_async = false;
  std::vector<int64_t> lines;  // when each manifest was written
  PathFiles files([&](const std::string& path) {
    if (contains(path, ".tmp/manifest.json.tmp")) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));  // time enough for steps, if they went on
      lines.push_back(num_lines(run, "a"));
    }
    return 0;
  });
  const ReplacedFileSystem in_force(files);
  run.train(c);
  EXPECT_THAT(lines, ElementsAre(2, 4, 6));
}

TEST(Save, IsNeverLeftOutWhenTheDiskIsSlow) {
  const TrainRun run;
  Config c = run.config("a");
  c.layout.dp = 2;
  c.train.save_every = 1;
  PathFiles files([&](const std::string& path) {
    if (contains(path, "rank_00001")) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return 0;
  });
  {
    const ReplacedFileSystem in_force(files);
    run.train(c);
  }
  EXPECT_EQ(run.events("a", "save").size(), 6u);
  EXPECT_EQ(list_folder(run.folder() / "runs/a/checkpoints").size(), 6u);
  for (int64_t step = 1; step <= 6; ++step) EXPECT_EQ(state_of(run.checkpoint("a", step))["step"], step);
}

TEST(FailedSave, IsToldToEveryRankAndLeavesTheOlderCheckpointAndNoTraces) {
  const TrainRun run;
  Config c = run.config("a");
  c.layout.dp = 4;
  std::atomic<bool> full{false};
  PathFiles files([&](const std::string& path) { return full && contains(path, "rank_00002") ? ENOSPC : 0; });
  const ReplacedFileSystem in_force(files);
  std::mutex mutex;
  std::vector<std::string> said;
  const std::string folder = run.folder() / "checkpoints";
  run_ranks(c.run, 4, [&](Rank& rank) {
    Session session(c, rank);
    session.initialize();
    Saver saver(session, folder, 2, 60);
    RunState state;
    state.step = 1;
    saver.start(state);
    EXPECT_TRUE(saver.busy());
    const auto saved = saver.finish();
    EXPECT_EQ(saved->path, folder + "/step_00000001");
    EXPECT_GT(saved->held, 0);
    EXPECT_FALSE(saver.busy());
    rank.control.barrier();
    full = true;
    state.step = 2;
    saver.start(state);
    const std::string message = message_of<IoError>([&] { saver.finish(); });
    rank.control.barrier();
    {
      const std::lock_guard lock(mutex);
      said.push_back(message);
    }
    EXPECT_EQ(list_folder(folder), std::vector<std::string>{"step_00000001"});
    rank.control.barrier();
    full = false;  // a later one works
    saver.start(state);
    EXPECT_EQ(saver.finish()->step, 2);
    EXPECT_FALSE(saver.finish().has_value());
  });
  ASSERT_EQ(said.size(), 4u);
  for (const std::string& message : said) {
    EXPECT_EQ(message, said[0]);
    EXPECT_THAT(message, HasSubstr("saving step 2 failed: cannot create " + folder +
                                   "/step_00000002.tmp/rank_00002.safetensors.tmp: No space left on device"));
  }
  EXPECT_EQ(list_folder(folder), (std::vector<std::string>{"step_00000001", "step_00000002"}));
}

TEST(FailedSave, ThatStandsStillEndsTheJobByTheTimeLimit) {
  const TrainRun run;
  Config c = run.config("a");
  c.layout.dp = 2;
  PathFiles files([&](const std::string& path) {
    if (contains(path, "rank_00001")) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    return 0;
  });
  const ReplacedFileSystem in_force(files);
  const std::string message = message_of<IoError>([&] {
    run_ranks(c.run, 2, [&](Rank& rank) {
      Session session(c, rank);
      session.initialize();
      Saver saver(session, run.folder() / "checkpoints", 2, 0.3);
      saver.start({});
      saver.finish();
    });
  });
  EXPECT_THAT(message, HasSubstr("saving step 0 has stood still for"));
  EXPECT_THAT(message, HasSubstr("rank 1 is still at work"));
}

TEST(FailedSave, EndsTheRunWhichResumesFromTheOneBeforeAsIfNothingHadBeen) {
  const TrainRun run;
  Config c = run.config("whole");
  c.layout.dp = 2;
  c.train.save_every = 2;
  run.train(c);
  c.run.name = "failed";
  PathFiles files([&](const std::string& path) {
    return contains(path, "step_00000004.tmp/manifest.json.tmp") ? EIO : 0;
  });
  {
    const ReplacedFileSystem in_force(files);
    EXPECT_THAT(message_of<IoError>([&] { run.train(c); }),
                HasSubstr("saving step 4 failed: cannot create " + run.checkpoint("failed", 4) +
                          ".tmp/manifest.json.tmp: Input/output error"));
  }
  EXPECT_EQ(list_folder(run.folder() / "runs/failed/checkpoints"), std::vector<std::string>{"step_00000002"});
  c.run.resume = "auto";
  run.train(c);
  expect_same_lines(run, "whole", "failed");
  expect_same_checkpoints(run.checkpoint("whole", 6), run.checkpoint("failed", 6));
}

TEST(Snapshot, HoldsEveryPieceInTheMemoryThatTheTableNames) {
  const TrainRun run;
  Config c = run.config("a");
  c.layout.n = 2;
  run_ranks(c.run, 2, [&](Rank& rank) {
    Session session(c, rank);
    session.initialize();
    Snapshot snapshot(session);
    snapshot.take();
    int64_t bytes = 0, biases = 0;
    for (const PieceToSave& piece : snapshot.pieces()) {
      bytes += piece.bytes();
      biases += piece.kind == "router_bias";
    }
    EXPECT_EQ(biases, rank.rank == 0 ? 2 : 0);
    EXPECT_GE(snapshot.bytes(), bytes);
    EXPECT_LT(snapshot.bytes(), bytes + bytes / 10);  // padding of buckets and alignment
    EXPECT_EQ(snapshot.bytes(), snapshot_bytes(session));
    EXPECT_THAT(memory_table(rank.device->arena(), snapshot.bytes()),
                HasSubstr(std::to_string(snapshot.bytes())));
  });
}

}  // namespace
}  // namespace moesaic
