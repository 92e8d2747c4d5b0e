// Case 3, all tokens go to one expert (torchtitan 1246, Megatron-LM 1839). Right: dropless gives the correct result, after a
// repeat with a larger rows bound; with capacity, exactly the tokens over it are dropped, and their residual path stays.
#include "support/layer_runner.h"
#include "support/setup_z.h"

namespace moesaic::test {
namespace {

TEST(Case03, DroplessIsCorrectWhenOneExpertTakesAll) {
  for (const int64_t top_k : {1, 2}) {
    Config c = setup_z();
    steer_by_bias(c);
    c.model.top_k = top_k;
    const Around around = only_experts(top_k == 1 ? std::vector<int64_t>{5} : std::vector<int64_t>{4, 5});
    const Outcome one = run_layout(c, 2, around);
    EXPECT_EQ(one.steps[0].expert_load[0][5], 8 * 64);
    for (const Dispatch dispatch : {Dispatch::a2a, Dispatch::ag_rs}) {
      const Outcome many = run_layout(on_ranks(c, 4, dispatch), 2, around);
      EXPECT_EQ(many.num_repeats, 1);  // the bound only grows
      expect_same_training(many, one);
    }
  }
}

TEST(Case03, EvaluationIsCorrectWhenOneExpertTakesAll) {
  Config c = setup_z();
  steer_by_bias(c);
  c.model.top_k = 1;
  const auto evaluate = [&](const Config& config) {
    Session::Evaluation evaluation;
    run_ranks(config.run, Mesh(config.layout).world_size(), [&](Rank& rank) {
      Session session(config, rank, false);
      session.initialize();
      only_experts({5}).prepare(session);
      const auto mine = session.evaluate(
          [&](std::span<const int64_t> numbers) {
            return random_batch(numbers, config.train.seq_len, config.model.vocab);
          },
          11);
      if (rank.rank == 0) evaluation = mine;
    });
    return evaluation;
  };
  const auto one = evaluate(c);
  for (const Dispatch dispatch : {Dispatch::a2a, Dispatch::ag_rs}) {
    const auto many = evaluate(on_ranks(c, 4, dispatch));
    EXPECT_NEAR(many.loss, one.loss, 1e-5 * one.loss);
    EXPECT_EQ(many.counted, one.counted);
  }
}

TEST(Case03, AStepPastTheRowsBoundChangesNothingAndSaysHowManyRowsItNeeds) {
  Config c = on_ranks(setup_z(), 4);
  steer_by_bias(c);
  c.model.top_k = 1;
  c.layout.on_overflow = OverflowPolicy::stop;
  const Outcome stopped = run_layout(c, 1, only_experts({5}));
  EXPECT_FALSE(stopped.steps[0].updated);
  EXPECT_EQ(stopped.steps[0].max_rows_asked, 8 * 64);
  for (const auto& [name, update] : stopped.updates) EXPECT_EQ(norm_of(update), 0) << name;
}

TEST(Case03, DroppingRowsPastTheBoundStillUpdates) {
  Config c = on_ranks(setup_z(), 4);
  steer_by_bias(c);
  c.model.top_k = 1;
  c.layout.on_overflow = OverflowPolicy::drop;
  const Outcome dropping = run_layout(c, 1, only_experts({5}));
  EXPECT_TRUE(dropping.steps[0].updated);
  EXPECT_TRUE(std::isfinite(dropping.steps[0].loss));
  EXPECT_GT(norm_of(dropping.updates.at("layers.0.experts.5.w1")), 0);
}

TEST(Case03, CapacityDropsExactlyTheTokensOverIt) {
  Config c = setup_z();
  steer_by_bias(c);
  c.model.top_k = 1;
  c.balance.capacity_factor = 2;  // of S K / E = 8: room for 16 tokens of each sequence
  const Outcome one = run_layout(c, 2, only_experts({5}));
  for (const int64_t dropped : one.steps[0].dropped) EXPECT_EQ(dropped, 8 * (64 - 16));
  for (const Dispatch dispatch : {Dispatch::a2a, Dispatch::ag_rs}) {
    const Outcome many = run_layout(on_ranks(c, 4, dispatch), 2, only_experts({5}));
    EXPECT_EQ(many.steps[0].dropped, one.steps[0].dropped);
    expect_same_training(many, one);
  }
}

TEST(Case03, ADroppedTokenKeepsItsResidual) {
  Config c = setup_z();
  c.model.top_k = 1;
  c.balance.capacity_factor = 0.5;
  run_ranks(c.run, 1, [&](Rank& rank) {
    LayerRunner layer(c, rank);
    const LayerResult result = layer.run(layer.forward(), layer.backward(), {});
    const auto indices = layer.activation<int32_t>(result, "group_indices");
    const auto residual = layer.activation<float>(result, "ln2_in");
    const auto D = static_cast<size_t>(c.model.hidden);
    int64_t dropped = 0;
    for (size_t t = 0; t < indices.size(); ++t) {
      const bool equal = std::equal(residual.begin() + static_cast<std::ptrdiff_t>(t * D),
                                    residual.begin() + static_cast<std::ptrdiff_t>((t + 1) * D),
                                    result.next.begin() + static_cast<std::ptrdiff_t>(t * D));
      EXPECT_EQ(equal, indices[t] == -1) << "token " << t;
      dropped += equal;
    }
    EXPECT_GE(dropped, 8 * 64 / 2);
    EXPECT_LT(dropped, 8 * 64);
  });
}

}  // namespace
}  // namespace moesaic::test
