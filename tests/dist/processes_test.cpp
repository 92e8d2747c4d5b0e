// A run whose ranks are processes is, to the last bit, the run whose ranks are threads: weights, moments, data position and
// every line of its metrics. The same where each process says that it is on a machine of its own (GPUs: NCCL joins them).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/parse.h"
#include "config/print.h"
#include "support/process_ranks.h"
#include "support/train_run.h"

namespace moesaic::test {
namespace {

TEST(ChildOfRuns, DISABLED_Train) {
  as_child([](const std::string& config) {
    const StopFlag stop{0};
    std::FILE* null = std::fopen("/dev/null", "w");
    train(parse_config_file(config), stop, null);
    std::fclose(null);
  });
}

struct Case {
  const char* name;
  int64_t dp, n, e;
  Dispatch dispatch;
  AttentionStrategy attention = AttentionStrategy::sp;
  ComputeType compute = ComputeType::f32;
  ReplayMode replay = ReplayMode::inline_;
};

class RunsOfProcesses : public testing::TestWithParam<Case> {
 protected:
  /// Trains as threads and as processes with these variables.
  static void compare(const Case& c, const ProcessRanks::Variables& variables);
};

std::vector<nlohmann::json> metrics_of(const TrainRun& run, const std::string& name) {
  std::vector<nlohmann::json> lines;
  for (const nlohmann::json& line : run.metrics(name)) lines.push_back(timeless(line));
  return lines;
}

void RunsOfProcesses::compare(const Case& c, const ProcessRanks::Variables& variables) {
  const TrainRun run;
  Config threads = run.config("threads");
  threads.layout.dp = c.dp, threads.layout.n = c.n, threads.layout.e = c.e;
  threads.layout.dispatch = c.dispatch, threads.layout.attention = c.attention;
  threads.train.compute = c.compute;
  threads.run.replay = c.replay;
  threads.train.save_every = 3;
  threads.train.micro_batch = 4;
  Config processes = threads;
  processes.run.name = "processes";
  run.train(threads);

  const TempFolder folder;
  spit(folder / "config.toml", print_config(processes));
  const int64_t size = Mesh(processes.layout).world_size();
  ProcessRanks ranks(size, "ChildOfRuns.DISABLED_Train", folder / "config.toml", variables);
  ASSERT_TRUE(ranks.wait(120));
  for (int64_t r = 0; r < size; ++r) ASSERT_EQ(ranks.code(r), kDone) << ranks.output(r);

  for (const int64_t step : {3, 6}) {
    const std::string a = run.checkpoint("threads", step), b = run.checkpoint("processes", step);
    EXPECT_TRUE(all_tensors(a) == all_tensors(b)) << "step " << step;
    EXPECT_EQ(state_of(a), state_of(b));
  }
  const auto lines = metrics_of(run, "threads");
  EXPECT_EQ(lines.size(), 6u);
  EXPECT_EQ(lines, metrics_of(run, "processes"));
}

TEST_P(RunsOfProcesses, EqualRunsOfThreads) {
  compare(GetParam(), {});
}

using RunsOfMachines = RunsOfProcesses;

TEST_P(RunsOfMachines, EqualRunsOfThreads) {
  if (test_device() != DeviceKind::cuda) GTEST_SKIP() << "CPU ranks do not ask for each other's machine";
  if (num_cuda_devices() < 2) GTEST_SKIP() << "needs two GPUs";
  compare(GetParam(), {{"MOESAIC_MACHINE", "RANK"}});
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, RunsOfMachines,
    testing::Values(Case{"replicas", 2, 1, 1, Dispatch::a2a}, Case{"experts", 2, 1, 2, Dispatch::a2a},
                    Case{"gathered", 2, 1, 2, Dispatch::ag_rs, AttentionStrategy::batch, ComputeType::bf16},
                    Case{"heads", 1, 2, 2, Dispatch::a2a},
                    Case{"chaos", 2, 1, 1, Dispatch::a2a, AttentionStrategy::batch, ComputeType::bf16,
                         ReplayMode::chaos}),
    [](const testing::TestParamInfo<Case>& tested) { return tested.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Layouts, RunsOfProcesses,
    testing::Values(Case{"all_to_all", 2, 2, 4, Dispatch::a2a}, Case{"gathered", 2, 2, 2, Dispatch::ag_rs},
                    Case{"half", 1, 4, 2, Dispatch::a2a, AttentionStrategy::batch},
                    Case{"bf16", 1, 2, 2, Dispatch::ag_rs, AttentionStrategy::sp, ComputeType::bf16},
                    Case{"chaos", 2, 2, 4, Dispatch::a2a, AttentionStrategy::sp, ComputeType::f32,
                         ReplayMode::chaos}),
    [](const testing::TestParamInfo<Case>& tested) { return tested.param.name; });

}  // namespace
}  // namespace moesaic::test
