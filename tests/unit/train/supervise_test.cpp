// When a job is started again, from where, and when not. Its processes are copies of this program that do what they are told; real
// runs that are killed at random are scripts/kill_test.py's.
#include "train/supervise.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "checkpoint/folder.h"
#include "checkpoint/writer.h"
#include "launch/exit_code.h"
#include "report/jsonl.h"
#include "support/process_ranks.h"
#include "support/temp_folder.h"

namespace moesaic::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

void publish_checkpoint(const std::string& run, int64_t step) {
  const CheckpointWriter writer(run + "/checkpoints", step);
  writer.begin();
  const std::vector<ShardInfo> shards{writer.write_shard(0, {})};
  writer.publish(shards, nlohmann::json::object());
}

/// A process of a job: logs two steps more than the last whole checkpoint, saves after the first of them ("saves"), and ends as
/// told: `failures` times by a signal or with a code, then well.
TEST(ChildOfSupervise, DISABLED_Work) {
  const char* what = std::getenv("MOESAIC_TEST_CHILD");
  if (what == nullptr) GTEST_SKIP() << "started by other tests";
  std::istringstream words(what);
  std::string run, saves, end;
  int64_t failures = 0;
  words >> run >> saves >> end >> failures;
  const std::string command_line = slurp("/proc/self/cmdline");
  std::ofstream(run + "/starts", std::ios::app)
      << (command_line.find("--resume") != std::string::npos ? "resume\n" : "new\n");
  std::istringstream starts(slurp(run + "/starts"));
  int64_t number = 0;
  for (std::string line; std::getline(starts, line);) ++number;
  const int64_t step = std::max<int64_t>(find_latest_checkpoint(run + "/checkpoints").step, 0);
  for (int64_t s = step; s < step + 2; ++s) {
    JsonLinesFile(run + "/metrics.jsonl").write(fmt::format("{{\"step\":{}}}", s));
    if (s == step && saves == "saves") publish_checkpoint(run, s + 1);
  }
  if (number > failures) std::_Exit(kExitDone);
  if (end == "killed") ::raise(SIGKILL);
  if (end == "signals") {
    ::kill(::getppid(), SIGTERM);
    std::this_thread::sleep_for(std::chrono::seconds(60));
  }
  std::_Exit(std::stoi(end));
}

class Supervise : public testing::Test {
 protected:
  Supervise() {
    run_.folder = folder_.path();
    run_.name = "r";
    std::filesystem::create_directories(path("checkpoints"));
  }
  int run(const std::string& what, int64_t max_restarts) {
    ::setenv("MOESAIC_TEST_CHILD", fmt::format("{} {}", path(""), what).c_str(), 1);
    const int code = supervise(
        run_, {.max_restarts = max_restarts, .arguments = child_arguments("ChildOfSupervise.DISABLED_Work")});
    ::unsetenv("MOESAIC_TEST_CHILD");
    return code;
  }
  std::string path(const std::string& name) const { return folder_ / ("r/" + name); }
  std::vector<std::string> lines(const std::string& name) const {
    std::istringstream text(slurp(path(name)));
    std::vector<std::string> all;
    for (std::string line; std::getline(text, line);) all.push_back(line);
    return all;
  }

  TempFolder folder_;
  RunConfig run_;
};

TEST_F(Supervise, AKilledJobGoesOnFromItsNewestCheckpoint) {
  EXPECT_EQ(run("saves killed 2", 1),
            kExitDone);  // each time with a new checkpoint, so once is never too often
  EXPECT_THAT(lines("starts"), ElementsAre("new", "resume", "resume"));
  const auto events = lines("events.jsonl");
  ASSERT_THAT(events, SizeIs(2));
  EXPECT_THAT(events[0], HasSubstr("\"step\":1,\"event\":\"failure\""));
  EXPECT_THAT(events[0],
              HasSubstr("the job failed: the process was ended by signal 9 (Killed); restart 1 (1 of 1 "
                        "without a new checkpoint) goes on from step 1; 1 step is done again"));
  EXPECT_THAT(events[1],
              HasSubstr("restart 2 (1 of 1 without a new checkpoint) goes on from step 2; 1 step"));
}

TEST_F(Supervise, WithoutACheckpointItStartsAsBefore) {
  EXPECT_EQ(run("never killed 1", 1), kExitDone);
  EXPECT_THAT(lines("starts"), ElementsAre("new", "new"));
  EXPECT_THAT(lines("events.jsonl"),
              ElementsAre(HasSubstr("goes on from the start; 2 steps are done again")));
}

TEST_F(Supervise, GivesUpAfterTooManyFailuresWithoutANewCheckpoint) {
  EXPECT_EQ(run("never killed 100", 2), 128 + SIGKILL);
  EXPECT_THAT(lines("starts"), SizeIs(3));
  EXPECT_THAT(lines("events.jsonl"),
              ElementsAre(HasSubstr("restart 1 (1 of 2"), HasSubstr("restart 2 (2 of 2"),
                          HasSubstr("given up after 2 restarts without a new checkpoint")));
}

TEST_F(Supervise, RanksThatHangOrLoseEachOtherAreStartedAgain) {
  for (const int code : {kExitLeftBehind, kExitJobFailed}) {
    std::filesystem::remove(path("starts"));
    EXPECT_EQ(run(fmt::format("saves {} 1", code), 1), kExitDone);
    EXPECT_THAT(lines("starts"), SizeIs(2));
  }
}

TEST_F(Supervise, WhatWouldFailAgainIsNotStartedAgain) {
  for (const int code : {kExitRefused, kExitUsage, kExitInterrupted}) {
    std::filesystem::remove(path("starts"));
    EXPECT_EQ(run(fmt::format("saves {} 1", code), 5), code);
    EXPECT_THAT(lines("starts"), SizeIs(1));
  }
  EXPECT_THAT(lines("events.jsonl"), IsEmpty());
}

TEST_F(Supervise, WithoutRestartsAFailureIsTheEnd) {
  EXPECT_EQ(run("saves killed 1", 0), 128 + SIGKILL);
  EXPECT_THAT(lines("starts"), SizeIs(1));
}

TEST_F(Supervise, ASignalEndsItForGood) {
  // It is passed on to the process, which ends by it; that is no failure.
  EXPECT_EQ(run("saves signals 1", 5), 128 + SIGTERM);
  EXPECT_THAT(lines("starts"), SizeIs(1));
  EXPECT_THAT(lines("events.jsonl"), IsEmpty());
}

TEST(LastStep, IsThatOfTheLastWholeLine) {
  const TempFolder folder;
  const std::string path = folder / "metrics.jsonl";
  EXPECT_EQ(last_step(path), std::nullopt);
  spit(path, "");
  EXPECT_EQ(last_step(path), std::nullopt);
  spit(path, "{\"step\":3}\n{\"step\":4,\"loss\":1}\n{\"step\":5");
  EXPECT_EQ(last_step(path), 4);
  spit(path, "{\"step\":3}\nnonsense\n");
  EXPECT_EQ(last_step(path), std::nullopt);
}

}  // namespace
}  // namespace moesaic::test
