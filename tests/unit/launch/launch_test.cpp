// Ranks of a job: failures come out as what they are, in time, and name rank, step and operation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "launch/launch.h"
#include "support/thrown.h"

namespace moesaic::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

RunConfig quick(double timeout = 30) {
  RunConfig run;
  run.threads = 1;
  run.comm_timeout = run.join_timeout = timeout;
  return run;
}

/// A collective of all ranks, through the device as a step does it.
void meet(Rank& rank, const std::string& name) {
  std::vector<int64_t> ranks;
  for (int64_t r = 0; r < rank.world_size; ++r) ranks.push_back(r);
  const auto group = rank.communicator(ranks);
  Program g("meet", DeviceKind::cpu);
  g.add({.name = name,
         .streams = {Stream::comm},
         .post = [&](const OpContext&, uint64_t sequence) { return group->barrier(sequence); },
         .take_sequence = [&] { return group->take_sequence(); }});
  const Plan plan(std::move(g));
  rank.device->replay(plan, {nullptr});
  rank.device->synchronize();
}

TEST(RunRanks, RunsEveryRankOnceWithItsOwnDeviceAndGroups) {
  std::array<std::atomic<int>, 4> runs{};
  run_ranks(quick(), 4, [&](Rank& rank) {
    ++runs[static_cast<size_t>(rank.rank)];
    EXPECT_EQ(rank.world_size, 4);
    EXPECT_EQ(rank.control.rank(), rank.rank);
    EXPECT_EQ(rank.device->kind(), DeviceKind::cpu);
    meet(rank, "hello");
    EXPECT_EQ(rank.control.sum(rank.rank), 6);
    EXPECT_TRUE(rank.control.any(rank.rank == 3));
    EXPECT_FALSE(rank.control.any(false));
    EXPECT_TRUE(rank.control.same("equal"));
    EXPECT_FALSE(rank.control.same(rank.rank == 2 ? "other" : "equal"));
    EXPECT_EQ(rank.control.broadcast("from " + std::to_string(rank.rank)), "from 0");
    rank.control.barrier();
  });
  for (const auto& count : runs) EXPECT_EQ(count, 1);
}

TEST(RunRanks, AConfigErrorOfAllRanksStaysAsItIs) {
  EXPECT_EQ(message_of<ConfigError>(
                [] { run_ranks(quick(), 4, [](Rank&) { fail<ConfigError>("layout.n = 3 is odd"); }); }),
            "layout.n = 3 is odd");
}

TEST(RunRanks, TheErrorOfOneRankComesOutAndEndsTheOthers) {
  std::atomic<int> ended{0};
  EXPECT_EQ(message_of<IoError>([&] {
              run_ranks(quick(), 4, [&](Rank& rank) {
                if (rank.rank == 2) fail<IoError>("no such file");
                try {
                  meet(rank, "all_gather tokens");
                } catch (const CommError& error) {
                  EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 2 ("), HasSubstr("failed: no such file")));
                  ++ended;
                  throw;
                }
              });
            }),
            "no such file");
  EXPECT_EQ(ended, 3);
}

TEST(RunRanks, AnyOtherExceptionNamesRankStepAndOperation) {
  const std::string message = message_of<CommError>([] {
    run_ranks(quick(), 2, [](Rank& rank) {
      rank.control.set_step(12);
      meet(rank, "all_to_all tokens");
      if (rank.rank == 1) throw std::out_of_range("index 9");
      rank.control.barrier();
    });
  });
  EXPECT_EQ(message, "rank 1 (step 12, last operation: all_to_all tokens) failed: index 9");
}

TEST(RunRanks, ASilentRankEndsTheJobInTimeAndIsNamed) {
  const auto start = std::chrono::steady_clock::now();
  const std::string message = message_of<CommError>([] {
    run_ranks(quick(0.3), 3, [](Rank& rank) {
      rank.control.set_step(5);
      meet(rank, "reduce_scatter head");
      if (rank.rank == 1) {  // hangs, but looks at the job's state
        for (;;) {
          rank.control.check();
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
      }
      meet(rank, "all_gather head");
    });
  });
  EXPECT_THAT(
      message,
      HasSubstr(
          "rank 1 (step 5, last operation: reduce_scatter head) stood still for 0.3 s while others "
          "waited: ranks 0, 2 (step 5, last operation: all_gather head; waits for rank 1 to join barrier"));
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), 5);
}

TEST(RunRanks, ARankThatEndsTooEarlyIsNamed) {
  EXPECT_THAT(message_of<CommError>([] {
                run_ranks(quick(1), 2, [](Rank& rank) {
                  if (rank.rank == 0) meet(rank, "all_gather head");
                });
              }),
              AllOf(HasSubstr("rank 1 (last operation: end of its work) will not come"),
                    HasSubstr("waits for rank 1 to join barrier number 1")));
}

TEST(RunRanksDeathTest, ARankThatNeverEndsIsLeftBehindWithCode3) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(run_ranks(quick(0.2), 2,
                        [](Rank& rank) {
                          rank.control.set_step(3);
                          if (rank.rank == 1) std::this_thread::sleep_for(std::chrono::hours(1));
                          meet(rank, "all_gather head");
                        }),
              testing::ExitedWithCode(3), "rank 1 \\(step 3, last operation: start\\) stood still");
}

TEST(RunRanks, ADeviceThatIsNotBuiltIsRefused) {
  RunConfig run = quick();
  run.device = DeviceKind::sim;
  EXPECT_THAT(message_of<ConfigError>([&] { run_ranks(run, 2, [](Rank&) {}); }),
              HasSubstr("sim is not built yet"));
}

TEST(RunRanks, AGpuThatIsNotThereIsRefused) {
  if (num_cuda_devices() > 0) GTEST_SKIP() << "this machine has a GPU";
  RunConfig run = quick();
  run.device = DeviceKind::cuda;
  EXPECT_THAT(message_of<Error>([&] { run_ranks(run, 2, [](Rank&) {}); }),
              HasSubstr("run.device = cuda, but"));
}

TEST(RunNullRank, SeesAJobOfManyRanks) {
  run_null_rank(5, 1024, [](Rank& rank) {
    EXPECT_EQ(rank.rank, 5);
    EXPECT_EQ(rank.world_size, 1024);
    EXPECT_EQ(rank.device->kind(), DeviceKind::null);
    const auto group = rank.communicator({1, 5, 9});
    EXPECT_EQ(group->rank(), 1);
    EXPECT_EQ(group->size(), 3);
    EXPECT_EQ(rank.control.all_gather("x").size(), 1024u);
  });
}

}  // namespace
}  // namespace moesaic::test
