// Ranks that mpirun started talk through MPI, in a build that has it: bit for bit what threads give, and the same ends when
// ranks disagree, throw, hang or die.
#include "comm/mpi/mpi.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "launch/transport.h"
#include "support/process_ranks.h"
#include "support/random_collectives.h"
#include "support/thread_ranks.h"

namespace moesaic::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr double kSoon = 5;  // with the time that mpirun takes to start and to end

std::unique_ptr<Communicator> group_of_all(Rank& rank) {
  std::vector<int64_t> ranks(static_cast<size_t>(rank.world_size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return rank.communicator(ranks);
}

/// What threads of this process give to each rank.
std::vector<std::vector<std::vector<float>>> by_threads(int64_t size, uint64_t first, uint64_t count) {
  ThreadWorld world(size, 60);
  std::vector<std::vector<std::vector<float>>> all(static_cast<size_t>(size));
  on_threads(world, [&](int64_t r) {
    all[static_cast<size_t>(r)] = run_collectives(*everyone(world, r), first, count, r);
  });
  return all;
}

void exchange_at_random(Rank& rank) {
  constexpr uint64_t kCalls = 80;
  const auto group = group_of_all(rank);
  for (uint64_t round = 0; round < 2; ++round) {
    const auto mine = run_collectives(*group, kCalls * round, kCalls, rank.rank);
    const auto all = by_threads(rank.world_size, kCalls * round, kCalls);
    const auto& expected = all[static_cast<size_t>(rank.rank)];
    for (size_t i = 0; i < mine.size(); ++i)
      require<Error>(same_bits(mine[i], expected[i]), "collective {} of round {} differs", i, round);
  }
}

/// More than fits one message of MPI's here, and no multiple of it.
void exchange_much(Rank& rank) {
  const auto group = group_of_all(rank);
  std::vector<float> mine(9'000'001, static_cast<float>(rank.rank + 1)), all(mine.size() * 2);
  for (size_t i = 0; i < mine.size(); i += 1000) mine[i] = static_cast<float>(i) * mine[1];
  complete(group->all_gather(group->take_sequence(), mine.data(), all.data(), 4 * 9'000'001));
  for (size_t i = 0; i < all.size(); ++i) {
    const size_t r = i / mine.size(), at = i % mine.size();
    const auto one = static_cast<float>(r + 1);
    require<Error>(all[i] == (at % 1000 == 0 ? static_cast<float>(at) * one : one), "element {} differs", i);
  }
}

void fail_as_told(const std::string& what, Rank& rank) {
  const auto group = group_of_all(rank);
  rank.control.set_time_limit(1);
  for (int64_t step = 0;; ++step) {
    rank.control.set_step(step);
    rank.control.set_operation("barrier");
    complete(group->barrier(group->take_sequence()));
    if (step == 20) std::this_thread::sleep_for(std::chrono::milliseconds(300));  // and be heard of
    if (step == 20 && rank.rank == 1) {
      if (what == "throw") fail<IoError>("no such file");
      if (what == "die") std::raise(SIGKILL);
      if (what == "hang") {
        rank.control.set_operation("thinking");
        std::this_thread::sleep_for(std::chrono::hours(1));
      }
    }
    if (step == 20 && what == "sizes") {
      std::vector<std::byte> send(800'000), receive(3 * send.size());
      complete(group->all_gather(group->take_sequence(), send.data(), receive.data(),
                                 rank.rank == 1 ? 800'000 : 400'000));
    }
  }
}

TEST(ChildOfMpi, DISABLED_Work) {
  std::signal(SIGTERM,
              SIG_IGN);  // mpirun's, when a rank is gone: what the others say comes from the control channel
  as_child([](const std::string& what) {
    RunConfig run;
    run.threads = 1;
    run.join_timeout = 20;
    run.transport = Transport::mpi;
    const char* size = std::getenv(std::getenv("PMI_SIZE") ? "PMI_SIZE" : "OMPI_COMM_WORLD_SIZE");
    for (int job = 0; job < 2; ++job)  // a process may hold several, one after the other
      run_ranks(run, std::stoi(size), [&](Rank& rank) {
        if (what == "random")
          exchange_at_random(rank);
        else if (what == "much")
          exchange_much(rank);
        else
          fail_as_told(what, rank);
      });
    leave_launcher();
  });
}

/// mpirun with `ranks` copies of this program. Tests skip where there is none for this build.
struct MpiRun {
  int code = -1;
  double seconds = 0;
  std::string output;

  MpiRun(int ranks, const std::string& what) {
    const TempFolder folder;
    const std::string file = folder / "output";
    const bool open_mpi = mpi::library().starts_with("Open MPI");
    std::string command =
        fmt::format("MOESAIC_TEST_CHILD={} timeout 120 {} {} -n {} {}", what, MOESAIC_MPIRUN,
                    open_mpi ? "--allow-run-as-root --oversubscribe --bind-to none" : "", ranks,
                    std::filesystem::read_symlink("/proc/self/exe").string());
    for (const std::string& word : child_arguments("ChildOfMpi.DISABLED_Work")) command += " " + word;
    const auto start = std::chrono::steady_clock::now();
    const int status = std::system((command + " </dev/null >" + file + " 2>&1").c_str());
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    output = slurp(file);
  }
};

class Mpi : public testing::Test {
 protected:
  void SetUp() override {
    if (mpi::library().empty()) GTEST_SKIP() << "this build has no MPI (cmake --preset mpi)";
  }
};

TEST_F(Mpi, CollectivesEqualThoseOfThreads) {
  for (const int ranks : {2, 4}) {
    const MpiRun run(ranks, "random");
    EXPECT_EQ(run.code, 0) << run.output;
    EXPECT_THAT(run.output, HasSubstr("ranks talk through MPI: " + mpi::library()));
  }
}

TEST_F(Mpi, LargeDataGoInPieces) {
  const MpiRun run(2, "much");
  EXPECT_EQ(run.code, 0) << run.output;
}

TEST_F(Mpi, DifferentSizesEndEveryRankAndNameBoth) {
  const MpiRun run(3, "sizes");
  EXPECT_NE(run.code, 0);
  EXPECT_LT(run.seconds, kSoon);
  EXPECT_THAT(run.output,
              AllOf(HasSubstr("all_gather of 800000 bytes"), HasSubstr("all_gather of 400000 bytes"),
                    HasSubstr("rank 1 (step 20"), HasSubstr(" called ")));
}

TEST_F(Mpi, ARankThatThrowsEndsTheOthersWhichDoNotWaitForItInMpi) {
  const MpiRun run(3, "throw");
  EXPECT_NE(run.code, 0);
  EXPECT_LT(run.seconds, kSoon);
  EXPECT_THAT(run.output, HasSubstr("no such file"));
}

TEST_F(Mpi, AKilledRankEndsTheOthers) {
  const MpiRun run(3, "die");
  EXPECT_NE(run.code, 0);
  EXPECT_THAT(run.output, HasSubstr("ranks talk through MPI"));  // it did begin
  EXPECT_LT(run.seconds, kSoon);
  if (mpi::library().starts_with("Open MPI")) {  // MPICH's mpirun kills them at once
    EXPECT_THAT(run.output, HasSubstr("rank 1 (step 20, last operation: barrier) is gone"));
  }
}

TEST_F(Mpi, AHungRankEndsTheOthersByName) {
  const MpiRun run(3, "hang");
  EXPECT_NE(run.code, 0);
  EXPECT_LT(run.seconds, 2 + kSoon);  // its time limit, and that of leaving it behind
  EXPECT_THAT(run.output, HasSubstr("rank 1 (step 20, last operation: thinking) stood still for 1 s"));
}

TEST(Transport, IsMpiWhereTheLauncherSpeaksTheBuildsOwn) {
  using Variables = std::map<std::string, std::string>;
  const auto speaks = [](const std::string& library, const Variables& variables) {
    return launcher_speaks(library, [&](const std::string& name) -> std::optional<std::string> {
      const auto at = variables.find(name);
      return at == variables.end() ? std::nullopt : std::optional(at->second);
    });
  };
  const Variables open_mpi{{"OMPI_COMM_WORLD_SIZE", "4"}, {"PMIX_RANK", "0"}}, hydra{{"PMI_RANK", "0"}},
      srun{{"SLURM_PROCID", "0"}}, srun_pmix{{"SLURM_PROCID", "0"}, {"PMIX_RANK", "0"}},
      srun_pmi2{{"SLURM_PROCID", "0"}, {"PMI_RANK", "0"}}, torchrun{{"RANK", "0"}};
  const auto speakers = [&](const std::string& library) {
    std::string all;
    for (const Variables& variables : {open_mpi, hydra, srun, srun_pmix, srun_pmi2, torchrun, {}})
      all += speaks(library, variables) ? '1' : '0';
    return all;
  };
  EXPECT_EQ(speakers("Open MPI v4.1.4"), "1001000");
  EXPECT_EQ(speakers("MPICH 4.0.2"), "0100100");
  EXPECT_EQ(speakers(""), "0000000");
}

}  // namespace
}  // namespace moesaic::test
