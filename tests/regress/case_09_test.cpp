// Case 9, NaN or Inf in router logits or gradients (Megatron-LM 780, Megatron-LLM 33, SGLang PR 30079): training went on with
// the counters at zero, or an all-NaN row gave an expert out of range. Right: no index out of range, all ranks agree to skip,
// weights and optimizer state keep every bit, and the report names tensor and rank.
#include "support/setup_z.h"

namespace moesaic::test {
namespace {

/// Every bit of the weights and the optimizer's state that this rank holds.
std::vector<std::byte> state_of(Session& session) {
  std::vector<std::byte> all;
  Device& device = session.stage().device();
  const auto append = [&](const void* from, int64_t bytes) {
    const size_t at = all.size();
    all.resize(at + static_cast<size_t>(bytes));
    device.fetch(all.data() + at, from, bytes);
  };
  const auto& buckets = session.stage().table().buckets();
  for (size_t b = 0; b < buckets.size(); ++b) {
    append(session.stage().weights(static_cast<int32_t>(b)), 4 * buckets[b].padded);
    for (const auto& state : session.optimizer().states())
      append(state.shards[b], buckets[b].shard() * size_of(state.dtype));
  }
  append(session.stage().router_bias(0),
         4 * session.stage().spec().model.num_layers * session.stage().spec().model.num_experts);
  return all;
}

Config four_ranks(Dispatch dispatch) {
  Config c = on_ranks(setup_z(), 2, dispatch);
  c.layout.dp = 2;
  c.train.micro_batch = 4;
  c.optim.kind = OptimizerKind::adamw;
  c.optim.clip = 1;
  c.model.router.selection_bias = true;
  return c;
}

TEST(Case09, ANanInOneTokensRouterRowSkipsTheStepOnAllRanks) {
  for (const Dispatch dispatch : {Dispatch::a2a, Dispatch::ag_rs}) {
    const Config c = four_ranks(dispatch);
    const auto marked = static_cast<int32_t>(c.model.vocab - 1);
    std::atomic<int> reports{0};
    run_ranks(c.run, 4, [&](Rank& rank) {
      Session session(c, rank);
      session.initialize();
      // The embedding of one token is NaN; the first step has it once, on one rank; later steps do not have it.
      const int32_t table = session.stage().table().bucket("embedding");
      const std::vector<float> nan(static_cast<size_t>(c.model.hidden), NAN);
      session.stage().device().store(session.stage().weights(table) + 4 * marked * c.model.hidden, nan.data(),
                                     4 * c.model.hidden);
      const auto source = [&](bool with_mark) {
        return [&, with_mark](std::span<const int64_t> positions) {
          Batch batch = random_batch(positions, c.train.seq_len, c.model.vocab - 1);
          if (with_mark && positions[0] == 0) batch.tokens[5] = marked;
          return batch;
        };
      };
      const StepResult good = session.step(source(false), 8, 1e-3);
      EXPECT_TRUE(good.updated);
      const auto before = state_of(session);
      const StepResult bad = session.step(source(true), 0, 1e-3);
      EXPECT_FALSE(bad.updated);
      EXPECT_FALSE(std::isfinite(bad.grad_norm));
      for (const auto& load : bad.expert_load) {
        int64_t sum = 0;
        for (int64_t count : load) sum += count;
        EXPECT_EQ(sum, 8 * 64 * c.model.top_k);  // each token chose K experts that exist
      }
      EXPECT_TRUE(state_of(session) == before);
      EXPECT_EQ(session.num_updates(), 1);
      reports += session.reducer().find_nonfinite().find("values") != std::string::npos;
      EXPECT_TRUE(session.step(source(false), 8, 1e-3).updated);
    });
    EXPECT_GT(reports, 0);
  }
}

TEST(Case09, AnInfInOneExpertGradientOnOneRankSkipsTheStepOnAllRanks) {
  const Config c = four_ranks(Dispatch::a2a);
  std::array<std::string, 4> reports;
  run_ranks(c.run, 4, [&](Rank& rank) {
    Session session(c, rank);
    session.initialize();
    Stage& stage = session.stage();
    const auto batch = random_batch(std::array<int64_t, 4>{0, 1, 2, 3}, c.train.seq_len, c.model.vocab);
    const auto do_step = [&](bool with_inf) {
      session.reducer().begin_step();
      session.feed().send_scalars(2 * batch.num_counted, 1e-3, 0.1, 0.05, false);
      session.feed().send(batch, 0, 0);
      stage.forward(0, true);
      stage.backward(0, true);
      if (with_inf && rank.rank == 3) {
        const float inf = INFINITY;
        stage.device().store(stage.grads(stage.table().bucket("layers.2.experts")) + 7, &inf, 4);
      }
      session.reducer().reduce();
      session.reducer().verdict();
      session.optimizer().step();
      session.reducer().gather();
      int32_t ok = -1;
      stage.device().fetch(&ok, stage.step_scalars() + StepScalars::kOk, 4);
      return ok;
    };
    EXPECT_EQ(do_step(false), 1);
    const auto before = state_of(session);
    EXPECT_EQ(do_step(true), 0);
    EXPECT_TRUE(state_of(session) == before);
    reports[static_cast<size_t>(rank.rank)] = session.reducer().find_nonfinite();
    EXPECT_EQ(do_step(false), 1);
  });
  // Ranks 1 and 3 hold experts 4 to 7; element 7 is in the shard of one of them.
  EXPECT_EQ(reports[0] + reports[1] + reports[2] + reports[3], "layers.2.experts.4.w1: 1 values");
  EXPECT_TRUE(reports[0].empty() && reports[2].empty());
}

}  // namespace
}  // namespace moesaic::test
