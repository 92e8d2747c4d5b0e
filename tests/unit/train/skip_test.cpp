// NaN and Inf: all ranks skip, nothing is touched, and the run says where and gives up in time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "checkpoint/digest.h"
#include "support/thrown.h"
#include "support/train_run.h"
#include "train/saver.h"

namespace moesaic {
namespace {

using namespace test;
using testing::HasSubstr;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

/// Puts `value` into an element of a tensor; returns what was there. Called on every rank; one that does not hold it does
/// nothing.
float poke(Session& session, const std::string& name, int64_t element, float value) {
  for (const ParameterRow& row : session.stage().table().rows()) {
    if (row.name != name) continue;
    std::byte* at = session.stage().weights(row.bucket) + (row.offset + element) * 4;
    float old = 0;
    session.stage().device().fetch(&old, at, 4);
    session.stage().device().store(at, &value, 4);
    return old;
  }
  return 0;
}

/// A digest of everything that a step may change on a rank.
std::string state_digest(Session& session) {
  std::string all;
  Stage& stage = session.stage();
  const auto add = [&](const void* memory, int64_t bytes) {
    std::string part(static_cast<size_t>(bytes), '\0');
    stage.device().fetch(part.data(), memory, bytes);
    all += part;
  };
  for (size_t b = 0; b < stage.table().buckets().size(); ++b) {
    const Bucket& bucket = stage.table().buckets()[b];
    add(stage.weights(static_cast<int32_t>(b)), bucket.padded * size_of(stage.spec().dtype));
    for (const Optimizer::State& state : session.optimizer().states())
      add(state.shards[b], bucket.shard() * size_of(state.dtype));
  }
  const ModelConfig& m = stage.spec().model;
  add(stage.router_bias(0), m.num_layers * m.num_experts * 4);
  return digest_of(std::as_bytes(std::span(all)));
}

struct Poison {
  const char* name;
  const char* tensor;
  int64_t element;
  float value;
};

class SkippedStep : public testing::TestWithParam<Poison> {};

TEST_P(SkippedStep, ChangesNothingOnAnyRankAndTheNextGoodOneIsAsIfItHadNotBeen) {
  const TrainRun run;
  Config c = run.config("a");
  c.layout.n = c.layout.dp = 2;
  // The last token of the vocabulary occurs once, in the second step: in one sequence of one replica, on one rank.
  const int64_t rare = c.model.vocab - 1;
  const BatchSource source = [&](std::span<const int64_t> positions) {
    Batch batch = random_batch(positions, c.train.seq_len, rare);
    for (size_t b = 0; b < positions.size(); ++b)
      if (positions[b] == 11)
        batch.tokens[b * static_cast<size_t>(c.train.seq_len) + 3] = static_cast<int32_t>(rare);
    return batch;
  };
  const auto steps = [&](bool poisoned) {
    std::vector<std::string> last(4);
    run_ranks(c.run, 4, [&](Rank& rank) {
      Session session(c, rank);
      session.initialize();
      session.step(source, 0, 1e-2);
      if (poisoned) {
        const Poison& p = GetParam();
        const std::string clean = state_digest(session);
        const float old = poke(session, p.tensor, p.element, p.value);
        const std::string before = state_digest(session);
        const StepResult result = session.step(source, 8, 1e-2);
        EXPECT_FALSE(result.updated);
        EXPECT_GT(result.counted, 0);
        EXPECT_EQ(session.num_updates(), 1);
        EXPECT_EQ(state_digest(session), before) << "rank " << rank.rank;
        poke(session, p.tensor, p.element, old);
        EXPECT_EQ(state_digest(session), clean) << "rank " << rank.rank;
      }
      const StepResult result = session.step(source, 16, 1e-2);
      EXPECT_TRUE(result.updated);
      EXPECT_TRUE(std::isfinite(result.loss));
      last[static_cast<size_t>(rank.rank)] =
          fmt::format("{} {} {}", state_digest(session), result.loss, result.grad_norm);
    });
    return last;
  };
  EXPECT_EQ(steps(true), steps(false));
}

INSTANTIATE_TEST_SUITE_P(Poisons, SkippedStep,
                         testing::Values(Poison{"one_token", "embedding", 66 * 32 + 5, kNan},
                                         Poison{"one_router_row", "layers.1.moe.router", 3 * 32, kNan},
                                         Poison{"one_expert", "layers.0.experts.5.w2", 7, kInf},
                                         Poison{"everything", "final_norm", 0, kInf}),
                         [](const auto& one) { return one.param.name; });

/// A checkpoint at step 0 with a NaN in a weight.
std::string poisoned_start(const TrainRun& run, const Config& c) {
  std::string path;
  run_ranks(c.run, Mesh(c.layout).world_size(), [&](Rank& rank) {
    Session session(c, rank);
    session.initialize();
    poke(session, "layers.1.attention.o", 0, kNan);
    Saver saver(session, run.folder() / "start", 1, 60);
    saver.start({});
    const auto saved = saver.finish();
    if (rank.rank == 0) path = saved->path;
  });
  return path;
}

TEST(SkippedRun, EndsAfterTooManyBadStepsAndHasNamedTensorAndRank) {
  const TrainRun run;
  Config c = run.config("bad");
  c.layout.n = c.layout.dp = 2;
  c.train.steps = 50;
  c.train.max_skipped = 3;
  c.run.resume = poisoned_start(run, c);
  const std::string message = message_of<Error>([&] { run.train(c); });
  EXPECT_THAT(message, HasSubstr("step 2 was skipped"));
  EXPECT_THAT(message, HasSubstr("3 steps in a row (train.max_skipped)"));
  const auto skips = run.events("bad", "skip");
  ASSERT_EQ(skips.size(), 3u);
  for (const std::string& skip : skips) {
    EXPECT_THAT(skip, HasSubstr("NaN or Inf"));
    for (const char* rank : {"rank 0: ", "rank 1: ", "rank 2: ", "rank 3: "})
      EXPECT_THAT(skip, HasSubstr(rank));
    EXPECT_THAT(skip, HasSubstr("embedding: "));
    EXPECT_LT(skip.size(), 1500u) << skip;
  }
  const auto lines = run.metrics("bad");
  ASSERT_EQ(lines.size(), 2u) << "the step at which the run ends has its event only";
  for (const auto& line : lines) {
    EXPECT_TRUE(line["skipped"]);
    EXPECT_TRUE(line["loss"].is_null());
  }
  EXPECT_TRUE(list_folder(run.folder() / "runs/bad/checkpoints").empty()) << "a bad run leaves no checkpoint";
}

TEST(SkippedRun, AStepWithoutCountedTokensUpdatesNothingAndIsNoFailure) {
  const TrainRun run;
  const Config c = run.config("a");
  run_ranks(c.run, 1, [&](Rank& rank) {
    Session session(c, rank);
    session.initialize();
    const std::string before = state_digest(session);
    const StepResult result = session.step(
        [&](std::span<const int64_t> positions) {
          Batch batch = random_batch(positions, c.train.seq_len, c.model.vocab);
          batch.targets.assign(batch.targets.size(), -1);
          batch.num_counted = 0;
          return batch;
        },
        0, 1e-2);
    EXPECT_FALSE(result.updated);
    EXPECT_EQ(result.counted, 0);
    EXPECT_EQ(result.loss, 0);
    EXPECT_EQ(state_digest(session), before);
  });
}

}  // namespace
}  // namespace moesaic
