// Every wait that the planner derives for a MoE layer is needed: without it the checker finds two unordered nodes, and in
// chaos mode some seed changes a number or breaks the run, or the wait is known not to touch any value.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>

#include "support/layer_runner.h"

namespace moesaic::test {
namespace {

constexpr uint64_t kSeeds = 100;
constexpr unsigned kSeconds = 60;  // of one child; a run that hangs is a run that broke

struct Case {
  Dispatch dispatch;
  Rebuild rebuild;
  OverlapMode overlap = OverlapMode::none;
};

Config config_of(const Case& c) {
  Config config = small_config();
  config.layout.n = 2;
  config.layout.dispatch = c.dispatch;
  config.layout.rebuild = c.rebuild;
  config.layout.overlap = c.overlap;
  config.model.shared_ffn = 16;
  config.model.num_layers = 1;
  config.balance.z_coef = 1e-2;
  config.train.micro_batch = config.train.global_batch = 2;
  config.run.comm_timeout = config.run.join_timeout = 10;
  return config;
}

bool same(const LayerResult& a, const LayerResult& b) {
  return same_bits(a.all, b.all);
}

/// Whether some chaos seed gives another result when wait k of the forward or backward plan is dropped (none: the plan as
/// it is). Runs in a child process, since indices may be read before they are written.
bool changes_something(const Config& config, bool in_backward, std::optional<size_t> k) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(kSeconds);
    for (const int descriptor : {STDOUT_FILENO, STDERR_FILENO}) close(descriptor);
    std::atomic<bool> changed{false};
    try {
      run_ranks(config.run, 2, [&](Rank& rank) {
        LayerRunner layer(config, rank);
        const Plan& whole = in_backward ? layer.backward() : layer.forward();
        const Plan broken = k ? whole.without_wait(*k) : whole;
        const Plan& forward = in_backward ? layer.forward() : broken;
        const Plan& backward = in_backward ? broken : layer.backward();
        const auto expected = layer.run(layer.forward(), layer.backward(), {});
        for (uint64_t seed = 1; seed <= kSeeds && !changed; ++seed) {
          const auto result = layer.run(
              forward, backward,
              {.mode = ReplayMode::chaos, .chaos_seed = 1000 * seed + static_cast<uint64_t>(rank.rank)});
          if (rank.control.any(!same(result, expected))) changed = true;
        }
      });
    } catch (const std::exception&) {
      changed = true;
    }
    _exit(changed ? 1 : 0);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

class DroppedWait : public testing::TestWithParam<Case> {};

TEST_P(DroppedWait, IsFoundByTheCheckerAndChangesANumber) {
  if (test_device() != DeviceKind::cpu) GTEST_SKIP() << "the CPU replays in chosen orders; a GPU does not";
  const Config config = config_of(GetParam());
  std::vector<std::string> neutral;
  run_null_rank(0, 2, [&](Rank& rank) {
    const LayerRunner layer(config, rank);
    for (const bool in_backward : {false, true}) {
      const Plan& plan = in_backward ? layer.backward() : layer.forward();
      EXPECT_FALSE(find_unordered(plan));
      EXPECT_FALSE(changes_something(config, in_backward, std::nullopt));
      const auto waits = plan.waits();
      EXPECT_GE(waits.size(), 8u);
      for (size_t k = 0; k < waits.size(); ++k) {
        const auto& nodes = plan.program().nodes();
        const std::string what = fmt::format(
            "{}: {} {} waits for {} {}{}", plan.program().name(), waits[k].node,
            nodes[static_cast<size_t>(waits[k].node)].name, waits[k].before,
            nodes[static_cast<size_t>(waits[k].before)].name, waits[k].reuse ? " (memory reuse)" : "");
        EXPECT_TRUE(find_unordered(plan.without_wait(k))) << what;
        if (!changes_something(config, in_backward, k)) neutral.push_back(what);
      }
    }
  });
  for (const std::string& what : neutral) ADD_FAILURE() << what;
}

INSTANTIATE_TEST_SUITE_P(Layer, DroppedWait,
                         testing::Values(Case{Dispatch::a2a, Rebuild::none},
                                         Case{Dispatch::a2a, Rebuild::full},
                                         Case{Dispatch::ag_rs, Rebuild::none},
                                         Case{Dispatch::ag_rs, Rebuild::full},
                                         Case{Dispatch::a2a, Rebuild::none, OverlapMode::parts},
                                         Case{Dispatch::a2a, Rebuild::full, OverlapMode::parts},
                                         Case{Dispatch::ag_rs, Rebuild::none, OverlapMode::parts},
                                         Case{Dispatch::ag_rs, Rebuild::full, OverlapMode::parts}));

}  // namespace
}  // namespace moesaic::test
