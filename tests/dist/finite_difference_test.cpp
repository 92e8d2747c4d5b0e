// Every gradient of a whole tiny model against central differences of its loss, one weight at a time: FP32, one rank.
#include <gtest/gtest.h>

#include <algorithm>

#include "support/layout_runner.h"

namespace moesaic::test {
namespace {

Config tiny() {
  Config c = small_config();
  c.model.hidden = 16;
  c.model.num_heads = 4, c.model.num_kv_heads = 2, c.model.head_dim = 4;
  c.model.expert_ffn = 12;
  c.model.num_experts = 4;
  c.model.vocab = 31;
  c.model.init_std = 0.3;
  c.train.seq_len = 8;
  c.train.micro_batch = c.train.global_batch = 2;
  c.balance.aux_coef = 0.05;
  c.balance.z_coef = 0.01;
  return c;
}

struct Variant {
  std::string name;
  void (*change)(Config&);
};

/// The loss that the step descends: main, balance and z-loss. Nothing is updated (learning rate 0).
StepResult look(Session& session, const Config& c) {
  return session.step(
      [&](std::span<const int64_t> positions) {
        return random_batch(positions, c.train.seq_len, c.model.vocab, true);
      },
      0, 0);
}
double total(const StepResult& r) {
  return r.loss + r.aux_loss + r.z_loss;
}

/// Elements to try in a tensor: the two with the largest gradient, and one at random.
std::vector<int64_t> elements(const std::vector<float>& gradient, uint64_t seed) {
  std::vector<int64_t> order(gradient.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
  std::partial_sort(order.begin(), order.begin() + 2, order.end(), [&](int64_t a, int64_t b) {
    return std::abs(gradient[static_cast<size_t>(a)]) > std::abs(gradient[static_cast<size_t>(b)]);
  });
  return {order[0], order[1], static_cast<int64_t>(random_below(gradient.size(), seed, 1, 0))};
}

class FiniteDifferences : public testing::TestWithParam<Variant> {};

TEST_P(FiniteDifferences, EveryTensorsGradientIsTheSlopeOfTheLoss) {
  Config c = tiny();
  GetParam().change(c);
  run_ranks(c.run, 1, [&](Rank& rank) {
    Session session(c, rank);
    session.initialize();
    const StepResult start = look(session, c);
    const bool drops =
        std::any_of(start.dropped.begin(), start.dropped.end(), [](int64_t rows) { return rows > 0; });
    EXPECT_EQ(drops, c.balance.capacity_factor > 0) << "capacity that drops nothing would test nothing";
    Tensors gradients;
    collect_gradients(session, gradients);
    Device& device = *rank.device;
    int tried = 0;
    for (const ParameterRow& row : session.stage().table().rows()) {
      const auto& gradient = gradients.at(row.name);
      for (const int64_t i : elements(gradient, stream_of(row.name))) {
        auto* weight = reinterpret_cast<float*>(session.stage().weights(row.bucket)) + row.offset + i;
        float before = 0;
        device.fetch(&before, weight, 4);
        const auto at = [&](float value) {
          device.store(weight, &value, 4);
          return look(session, c);
        };
        // Fourth order from two steps: the loss is known to about 1e-7, so a large step, whose error is small nevertheless.
        const float h = 0.02f;
        const StepResult far_up = at(before + 2 * h), up = at(before + h), down = at(before - h),
                         far_down = at(before - 2 * h);
        at(before);
        const auto same_routing = [&](const StepResult& r) { return r.expert_load == start.expert_load; };
        if (!same_routing(far_up) || !same_routing(up) || !same_routing(down) || !same_routing(far_down))
          continue;  // the loss has a jump in between
        const double slope =
            (8 * (total(up) - total(down)) - (total(far_up) - total(far_down))) / (12 * double(h));
        const double g = gradient[static_cast<size_t>(i)];
        EXPECT_NEAR(slope, g, 1e-2 * std::abs(g) + 5e-5) << row.name << " element " << i;
        ++tried;
      }
    }
    EXPECT_GT(tried, static_cast<int>(session.stage().table().rows().size()) * 2);
  });
}

INSTANTIATE_TEST_SUITE_P(Models, FiniteDifferences,
                         testing::Values(Variant{"plain", [](Config&) {}},
                                         Variant{"qk_norm_shared_dense",
                                                 [](Config& c) {
                                                   c.model.qk_norm = true, c.model.shared_ffn = 10;
                                                   c.model.num_dense_layers = 1, c.model.dense_ffn = 14;
                                                   c.layout.rebuild = Rebuild::full;
                                                 }},
                                         Variant{"sigmoid_groups_tied",
                                                 [](Config& c) {
                                                   c.model.tied_embedding = true;
                                                   RouterConfig& r = c.model.router;
                                                   r.score = ScoreFunction::sigmoid, r.num_groups = 2,
                                                   r.num_groups_kept = 1, r.weight_scale = 2;
                                                   r.selection_bias = true, r.bias_rate = 0;
                                                 }},
                                         Variant{"after_topk_capacity",
                                                 [](Config& c) {
                                                   c.model.router.softmax_after_topk = true;
                                                   c.balance.capacity_factor = 1;
                                                   c.balance.scope = BalanceScope::micro_batch;
                                                 }},
                                         Variant{"plain_weights_expert_groups",
                                                 [](Config& c) {
                                                   c.model.router.renormalize = false;
                                                   c.balance.expert_groups = 2;
                                                   c.layout.rebuild = Rebuild::selective;
                                                 }}),
                         [](const auto& variant) { return variant.param.name; });

}  // namespace
}  // namespace moesaic::test
