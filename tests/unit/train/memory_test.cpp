// Memory: the null device predicts it to the byte, and a run takes nothing more after its first step.
#include <gtest/gtest.h>

#include <fstream>
#include <numeric>

#include "config/counts.h"
#include "config/parse.h"
#include "support/setup_z.h"
#include "support/train_run.h"
#include "train/inspect.h"

namespace moesaic {
namespace {

using namespace test;

BatchSource random_source(const Config& c) {
  return [&c](std::span<const int64_t> positions) {
    return random_batch(positions, c.train.seq_len, c.model.vocab);
  };
}

struct Layout {
  const char* name;
  std::vector<std::string> settings;
};

class Memory : public testing::TestWithParam<Layout> {
 protected:
  Config config() const {
    Config c = small_config();
    c.model.num_dense_layers = 1, c.model.dense_ffn = 48, c.model.shared_ffn = 20;
    c.layout.rows_factor = 8;  // no repeats
    c.train.micro_batch = 2;
    apply_settings(c, GetParam().settings);
    return c;
  }
};

TEST_P(Memory, OfTheNullDeviceIsTheHighWaterOfTheRealRunToTheByte) {
  const Config c = config();
  const int64_t world = Mesh(c.layout).world_size();
  std::vector<std::vector<int64_t>> predicted(static_cast<size_t>(world)), real(predicted);
  const auto note = [](const Arena& arena, std::vector<int64_t>& to) {
    for (int purpose = 0; purpose <= static_cast<int>(Purpose::buffers); ++purpose)
      to.push_back(arena.bytes(static_cast<Purpose>(purpose)));
    to.push_back(arena.high_water());
  };
  Config imagined = c;
  imagined.run.device = DeviceKind::null;
  for (int64_t r = 0; r < world; ++r)
    run_null_rank(r, world, [&](Rank& rank) {
      Session session(imagined, rank);
      note(rank.device->arena(), predicted[static_cast<size_t>(r)]);
    });
  run_ranks(c.run, world, [&](Rank& rank) {
    Session session(c, rank);
    session.initialize();
    for (int64_t i = 0; i < 2; ++i) {
      const StepResult result = session.step(random_source(c), i * c.train.global_batch, 1e-3);
      EXPECT_EQ(result.max_rows_asked, 0);
    }
    session.evaluate(random_source(c), 3);
    note(rank.device->arena(), real[static_cast<size_t>(rank.rank)]);
    EXPECT_EQ(rank.device->arena().bytes(), rank.device->arena().high_water());
  });
  EXPECT_EQ(predicted, real);
  // The table that people see has that sum.
  EXPECT_NE(inspect_memory(c).find(std::to_string(real[0].back())), std::string::npos) << inspect_memory(c);
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, Memory,
    testing::Values(
        Layout{"one", {}}, Layout{"n2_dp2", {"layout.n=2", "layout.dp=2"}},
        Layout{"n4_selective_bf16", {"layout.n=4", "layout.rebuild=selective", "train.compute=bf16"}},
        Layout{"n2_full_agrs", {"layout.n=2", "layout.rebuild=full", "layout.dispatch=ag_rs"}},
        Layout{"e4_of_n2_dp2_a2a", {"layout.n=2", "layout.dp=2", "layout.e=4", "layout.dispatch=a2a"}},
        Layout{"batch_n2_e1", {"layout.n=2", "layout.e=1", "layout.attention=batch"}},
        Layout{"sgd_tied", {"optim.kind=sgd", "optim.momentum=0.9", "model.tied_embedding=true"}}),
    [](const auto& one) { return one.param.name; });

int64_t resident_pages() {
  std::ifstream file("/proc/self/statm");
  int64_t size = 0, resident = 0;
  file >> size >> resident;
  return resident;
}

// The same batch at learning rate 0. In the first step any expert may be chosen, in the others two alone, which have eight times
// the rows of before. What is left to move is what the C library keeps of freed messages; a leak of the smallest activation (T x D,
// 4 or 8 pages of each rank) would be 480 pages.
TEST(MemoryOfARun, DoesNotGrowAfterTheFirstStep) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer keeps freed memory for a while";
#endif
  constexpr int64_t kFirst = 1, kSteps = 33, kSlackPages = 48;
  for (const ComputeType type : {ComputeType::f32, ComputeType::bf16}) {
    Config c = small_config();
    c.layout.n = c.layout.dp = 2;
    c.layout.rows_factor = 2;
    c.model.hidden = 64, c.model.expert_ffn = 96, c.model.num_experts = 16;
    c.train.seq_len = 64, c.train.micro_batch = 4;
    c.train.compute = type;
    steer_by_bias(c);
    run_ranks(c.run, 4, [&](Rank& rank) {
      Session session(c, rank);
      session.initialize();
      int64_t pages = 0, taken = 0;
      for (int64_t i = 0; i < kFirst + kSteps; ++i) {
        std::vector<int64_t> experts{i % 16, (i + 1) % 16};
        if (i == 0) experts.resize(16), std::iota(experts.begin(), experts.end(), 0);
        only_experts(experts).prepare(session);
        EXPECT_EQ(session.step(random_source(c), 0, 0).max_rows_asked, 0);
        rank.control.barrier();
        if (i + 1 == kFirst) pages = resident_pages(), taken = rank.device->arena().bytes();
      }
      EXPECT_LE(resident_pages() - pages, kSlackPages) << "rank " << rank.rank;
      EXPECT_EQ(rank.device->arena().high_water(), taken);
      rank.control.barrier();
    });
  }
}

TEST(NullDevice, RunsTheStepOfTheQuickstart) {
  Config c = parse_config_file(std::string(MOESAIC_SOURCE_DIR) + "/configs/runs/quickstart.toml");
  c.run.device = DeviceKind::null;
  const int64_t world = Mesh(c.layout).world_size();
  for (int64_t r = 0; r < world; ++r)
    run_null_rank(r, world, [&](Rank& rank) {
      Session session(c, rank);
      session.initialize();
      const auto before = rank.device->totals();
      const StepResult result = session.step(random_source(c), 0, 1e-3);
      const bool speaks =
          rank.rank % c.layout.n == 0;  // the tokens of a replica are counted by its first rank
      EXPECT_EQ(result.counted > 0, speaks);
      const auto& after = rank.device->totals();
      EXPECT_GT(after.nodes - before.nodes, 100);
      EXPECT_GT(after.bytes, before.bytes);
      EXPECT_GT(after.sent, before.sent);
      // Forward and backward of this rank's share, by the model's own count: attention and norms are on top of it.
      const double share = flops_per_token(c.model, c.train.seq_len) *
                           static_cast<double>(c.train.global_batch * c.train.seq_len) /
                           static_cast<double>(world);
      EXPECT_GT(after.operations - before.operations, 0.9 * share);
      EXPECT_LT(after.operations - before.operations, 2 * share);
      session.evaluate(random_source(c), 10);
    });
}

}  // namespace
}  // namespace moesaic
