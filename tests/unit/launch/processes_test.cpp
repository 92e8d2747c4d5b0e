// Ranks that are processes: what they do together, and what becomes of the others when one of them dies, stops, throws or is
// started wrongly.
#include "launch/processes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "comm/meeting/shared_boards.h"
#include "launch/launch.h"
#include "launch/rank_variables.h"
#include "support/process_ranks.h"
#include "support/thrown.h"

namespace moesaic::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr double kSoon = 3;  // about a second, on a machine that is busy with other tests

std::unique_ptr<Communicator> group_of_all(Rank& rank) {
  std::vector<int64_t> ranks;
  for (int64_t r = 0; r < rank.world_size; ++r) ranks.push_back(r);
  return rank.communicator(ranks);
}

void meet(Rank& rank, Communicator& group, const std::string& name) {
  rank.control.set_operation(name);
  const Pending pending = group.barrier(group.take_sequence());
  while (!pending()) std::this_thread::sleep_for(std::chrono::microseconds(50));
}

/// Meets the others in shared memory, as GPU ranks do, with nothing to move: more often than there are cells, then as told.
void meet_in_shared_memory(Rank& rank, bool disagree) {
  SharedBoards boards(rank.control, "this machine");
  const auto mover = make_cpu_mover();
  const auto group = make_meeting_communicator(
      MeetingPlace(rank.control, boards.neighbours(), static_cast<size_t>(rank.rank),
                   boards.group(boards.neighbours()), *mover, nullptr));
  for (uint64_t i = 0; i < 3 * kCells; ++i) meet(rank, *group, "meeting");
  if (disagree && rank.rank == 1) {
    const Pending pending = group->all_gather(group->take_sequence(), nullptr, nullptr, 0);
    while (!pending()) std::this_thread::yield();
  }
  meet(rank, *group, "last meeting");
  std::fprintf(stderr, "met\n");
  rank.control.barrier();
}

void work_as_told(const std::string& what, Rank& rank) {
  rank.control.set_time_limit(what == "hang" || what == "leave" ? 1 : 3);
  if (what == "boards" || what == "disagree") return meet_in_shared_memory(rank, what == "disagree");
  const auto group = group_of_all(rank);
  if (what == "jobs") return meet(rank, *group, "barrier");
  if (what == "sum") {
    const auto mine = static_cast<float>(rank.rank + 1);
    float sum = 0;
    const Pending pending = group->all_reduce(group->take_sequence(), &mine, &sum, 1, DType::f32);
    while (!pending()) std::this_thread::yield();
    std::fprintf(stderr, "rank %d of %d: sum %g, control %d, %s\n", static_cast<int>(rank.rank),
                 static_cast<int>(rank.world_size), static_cast<double>(sum),
                 static_cast<int>(rank.control.sum(rank.rank)),
                 rank.control.same("x") ? "same" : "different");
    return;
  }
  if (what == "config") fail<ConfigError>("layout.n = 3 is odd");
  for (int64_t step = 0;; ++step) {
    rank.control.set_step(step);
    meet(rank, *group, "barrier");
    if (step < 3) continue;
    if (step == 3) std::fprintf(stderr, "running as %d\n", static_cast<int>(::getpid()));
    if (what == "io" && rank.rank == 1) fail<IoError>("no such file");
    if (what == "leave" && rank.rank == 1) return;
    if (what == "hang" && rank.rank == 1) {
      rank.control.set_operation("thinking");
      std::this_thread::sleep_for(std::chrono::hours(1));
    }
  }
}

TEST(ChildOfProcesses, DISABLED_Work) {
  as_child([](const std::string& what) {
    RunConfig run;
    run.threads = 1;
    run.comm_timeout = what == "hang" || what == "leave" ? 1 : 3;
    run.join_timeout = 20;
    run.name = std::getenv("MOESAIC_TEST_NAME") != nullptr ? std::getenv("MOESAIC_TEST_NAME") : "run";
    const char* size = std::getenv("MOESAIC_TEST_LAYOUT");
    for (int job = 0; job < (what == "jobs" ? 20 : 1); ++job)
      run_ranks(run, size != nullptr ? std::stoi(size) : std::stoi(std::getenv("WORLD_SIZE")),
                [&](Rank& rank) { work_as_told(what, rank); });
  });
}

constexpr const char* kChild = "ChildOfProcesses.DISABLED_Work";

/// Until all ranks are in the middle of their work, and have been heard of.
bool are_running(ProcessRanks& ranks, int64_t count) {
  for (int64_t r = 0; r < count; ++r)
    if (!ranks.wait_for_output(r, "running", 60)) return false;
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  return true;
}

TEST(Processes, WorkTogether) {
  ProcessRanks ranks(4, kChild, "sum");
  ASSERT_TRUE(ranks.wait(60));
  for (int64_t r = 0; r < 4; ++r) {
    EXPECT_EQ(ranks.code(r), kDone);
    EXPECT_THAT(ranks.output(r), HasSubstr(fmt::format("rank {} of 4: sum 10, control 6, same", r)));
  }
}

TEST(Processes, HoldOneJobAfterAnother) {
  ProcessRanks ranks(4, kChild, "jobs");
  ASSERT_TRUE(ranks.wait(60));
  for (int64_t r = 0; r < 4; ++r) EXPECT_EQ(ranks.code(r), kDone) << ranks.output(r);
}

TEST(Processes, AKilledRankEndsTheOthersWithinAboutASecond) {
  ProcessRanks ranks(4, kChild, "run");
  ASSERT_TRUE(are_running(ranks, 4));
  ranks.signal(2, SIGKILL);
  ASSERT_TRUE(ranks.wait(20));
  EXPECT_EQ(ranks.code(0), kFailed);  // it speaks for those that are left
  EXPECT_THAT(ranks.output(0),
              AllOf(HasSubstr("rank 2 (step "), HasSubstr("last operation: barrier) is gone"),
                    HasSubstr("; the others: ")));
  for (int64_t r : {1, 3}) {
    EXPECT_EQ(ranks.code(r), kOtherFailed);
    EXPECT_THAT(ranks.output(r), Not(HasSubstr("rank 2")));
  }
  for (int64_t r : {0, 1, 3}) EXPECT_LT(ranks.seconds(r), kSoon) << r;
}

TEST(Processes, AKilledRankZeroEndsTheOthersWithinAboutASecond) {
  ProcessRanks ranks(3, kChild, "run");
  ASSERT_TRUE(are_running(ranks, 3));
  ranks.signal(0, SIGKILL);
  ASSERT_TRUE(ranks.wait(20));
  for (int64_t r : {1, 2}) {
    EXPECT_EQ(ranks.code(r), kFailed);
    EXPECT_THAT(ranks.output(r), AllOf(HasSubstr("rank 0 (step "), HasSubstr("is gone"),
                                       HasSubstr(fmt::format("this was rank {} (step ", r))));
    EXPECT_LT(ranks.seconds(r), kSoon);
  }
}

TEST(Processes, AStoppedRankEndsTheOthersWithinTheTimeLimit) {
  for (const int64_t stopped : {0, 1}) {
    ProcessRanks ranks(3, kChild, "run");
    ASSERT_TRUE(are_running(ranks, 3));
    ranks.signal(stopped, SIGSTOP);
    ASSERT_TRUE(ranks.wait(20, 1));
    const std::string name = fmt::format("rank {} (step ", stopped);
    int told = 0;
    for (int64_t r = 0; r < 3; ++r) {
      if (r == stopped) continue;
      EXPECT_THAT(ranks.code(r), testing::AnyOf(kFailed, kOtherFailed));
      EXPECT_LT(ranks.seconds(r), 3 + kSoon);
      EXPECT_GT(ranks.seconds(r), 2);
      told += ranks.code(r) == kFailed;
      if (ranks.code(r) != kFailed) continue;
      EXPECT_THAT(ranks.output(r),
                  AllOf(HasSubstr(name), testing::AnyOf(HasSubstr("was not heard of for 3 s"),
                                                        HasSubstr("stood still for 3 s"))));
    }
    EXPECT_GE(told, 1);
  }
}

TEST(Processes, TheErrorOfOneRankIsToldByThatRankAndEndsTheOthers) {
  ProcessRanks ranks(3, kChild, "io");
  ASSERT_TRUE(ranks.wait(60));
  EXPECT_EQ(ranks.code(1), kFailed);
  EXPECT_THAT(ranks.output(1), HasSubstr("no such file"));
  for (int64_t r : {0, 2}) {
    EXPECT_EQ(ranks.code(r), kOtherFailed);
    EXPECT_THAT(ranks.output(r), Not(HasSubstr("no such file")));
  }
}

TEST(Processes, AnErrorOfAllRanksIsToldOnce) {
  ProcessRanks ranks(4, kChild, "config");
  ASSERT_TRUE(ranks.wait(60));
  int told = 0;
  for (int64_t r = 0; r < 4; ++r) {
    EXPECT_THAT(ranks.code(r), testing::AnyOf(kFailed, kOtherFailed));
    told += ranks.code(r) == kFailed;
    if (ranks.code(r) != kFailed) continue;
    EXPECT_THAT(ranks.output(r), HasSubstr("layout.n = 3 is odd"));
  }
  EXPECT_EQ(told, 1);
}

TEST(Processes, ARankThatHangsIsNamedAndLeaves) {
  ProcessRanks ranks(3, kChild, "hang");
  ASSERT_TRUE(ranks.wait(60));
  EXPECT_EQ(ranks.code(1), 3);
  EXPECT_THAT(ranks.output(1),
              HasSubstr("leaving in the middle of its work: rank 1 (step 3, last operation: thinking)"));
  std::string all;
  for (int64_t r : {0, 2}) all += ranks.output(r);
  EXPECT_THAT(
      all,
      AllOf(HasSubstr("rank 1 (step 3, last operation: thinking) stood still for 1 s while others waited"),
            HasSubstr("waits for rank 1 to join barrier number 5")));
}

TEST(Processes, ARankThatEndsTooEarlyIsNamed) {
  ProcessRanks ranks(3, kChild, "leave");
  ASSERT_TRUE(ranks.wait(60));
  std::string all;
  for (int64_t r : {0, 2}) all += ranks.output(r);
  EXPECT_THAT(all, AllOf(HasSubstr("rank 1 (step 3, last operation: end of its work) will not come"),
                         HasSubstr("waits for rank 1 to join barrier number 5")));
  EXPECT_EQ(ranks.code(1), kOtherFailed);
}

TEST(Processes, AsManyAsTheLayoutHasRanks) {
  ProcessRanks ranks(2, kChild, "sum", {{"MOESAIC_TEST_LAYOUT", "4"}});
  ASSERT_TRUE(ranks.wait(60));
  for (int64_t r = 0; r < 2; ++r) {
    EXPECT_EQ(ranks.code(r), kFailed);
    EXPECT_THAT(ranks.output(r), HasSubstr("torchrun started 2 processes, but the layout has 4 ranks"));
  }
}

TEST(Processes, OneProcessRunsAllRanksAsThreads) {
  ProcessRanks ranks(1, kChild, "sum", {{"MOESAIC_TEST_LAYOUT", "4"}});
  ASSERT_TRUE(ranks.wait(60));
  EXPECT_EQ(ranks.code(0), kDone);
  EXPECT_THAT(ranks.output(0), HasSubstr("rank 3 of 4: sum 10"));
}

TEST(Processes, MeetInSharedMemory) {
  ProcessRanks ranks(3, kChild, "boards");
  ASSERT_TRUE(ranks.wait(60));
  for (int64_t r = 0; r < 3; ++r) EXPECT_THAT(ranks.output(r), HasSubstr("met")) << r;
}

TEST(Processes, ThatCallDifferentCollectivesInSharedMemoryAreNamed) {
  ProcessRanks ranks(3, kChild, "disagree");
  ASSERT_TRUE(ranks.wait(60));
  std::string told;
  for (int64_t r = 0; r < 3; ++r) {
    EXPECT_NE(ranks.code(r), kDone) << r;
    told += ranks.output(r);
  }
  EXPECT_THAT(told, AllOf(HasSubstr("all_gather of 0 bytes"), HasSubstr("barrier of 0 bytes"),
                          HasSubstr("rank 1 (")));
}

TEST(Processes, TwoJobsOnOnePortRefuseEachOther) {
  const int port = tcp::port_of(tcp::listen_at("127.0.0.1", 0));
  const ProcessRanks::Variables first{{"MASTER_PORT", std::to_string(port - 1)}},
      second{{"MASTER_PORT", std::to_string(port - 1)}, {"MOESAIC_TEST_NAME", "other"}};
  ProcessRanks a(2, kChild, "run", first);
  ASSERT_TRUE(are_running(a, 2));
  ProcessRanks b(2, kChild, "run", second);
  ASSERT_TRUE(b.wait(60));
  EXPECT_EQ(b.code(0), kFailed);
  EXPECT_THAT(b.output(0),
              AllOf(HasSubstr(fmt::format("port {} of this machine cannot be listened on", port)),
                    HasSubstr("set run.control_port")));
  EXPECT_EQ(b.code(1), kFailed);
  EXPECT_THAT(b.output(1),
              AllOf(HasSubstr("was given another configuration"), HasSubstr("set run.control_port")));
  EXPECT_FALSE(a.wait(0.3));  // the first one goes on
}

// The others end because of it, some of them sooner.
TEST(RunProcesses, PassesOnTheCodeOfTheRankThatFailed) {
  ::setenv("MOESAIC_TEST_CHILD", "sum", 1);
  EXPECT_EQ(run_processes(3, 0, child_arguments(kChild)), 0);
  ::setenv("MOESAIC_TEST_CHILD", "config", 1);
  EXPECT_EQ(run_processes(3, 0, child_arguments(kChild)), kFailed);
  ::setenv("MOESAIC_TEST_CHILD", "io", 1);  // of one rank
  for (int i = 0; i < 5; ++i) EXPECT_EQ(run_processes(3, 0, child_arguments(kChild)), kFailed);
  ::setenv("MOESAIC_TEST_CHILD", "hang", 1);
  EXPECT_NE(run_processes(3, 0, child_arguments(kChild)), 0);
  ::unsetenv("MOESAIC_TEST_CHILD");
}

TEST(ChildOfProcesses, DISABLED_Parent) {
  as_child([](const std::string&) { std::exit(run_processes(2, 0, child_arguments(kChild))); });
}

/// Whether a process exists and is not only waiting to be buried.
bool lives(const std::string& pid) {
  const std::string stat = slurp("/proc/" + pid + "/stat");
  const size_t name = stat.rfind(") ");
  return name != std::string::npos && stat[name + 2] != 'Z';
}

TEST(RunProcesses, ChildrenOfADeadParentDie) {
  // This test's child starts two ranks that would run for ever.
  ProcessRanks parent(1, "ChildOfProcesses.DISABLED_Parent", "run");
  std::vector<std::string> pids;
  for (int i = 0; i < 2000 && pids.size() < 2; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    std::istringstream output(parent.output(0));
    pids.clear();
    for (std::string line; std::getline(output, line);)
      if (line.starts_with("running as ")) pids.push_back(line.substr(11));
  }
  ASSERT_EQ(pids.size(), 2u);
  for (const std::string& pid : pids) EXPECT_TRUE(lives(pid));
  parent.signal(0, SIGKILL);
  ASSERT_TRUE(parent.wait(10));
  for (int i = 0; i < 500 && (lives(pids[0]) || lives(pids[1])); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  for (const std::string& pid : pids) EXPECT_FALSE(lives(pid));
}

}  // namespace
}  // namespace moesaic::test
