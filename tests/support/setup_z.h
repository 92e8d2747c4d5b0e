#pragma once
// Set-up Z of the regression tests: 4 layers, hidden 64, 8 query and 2 key/value heads, 8 experts, top-2, expert FFN 96,
// sequence 64, vocabulary 259, global batch 8, FP32, SGD, no clipping; and ways to steer it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/layout_runner.h"

namespace moesaic::test {

inline Config setup_z() {
  Config c = small_config();
  c.model.num_layers = 4;
  c.model.hidden = 64;
  c.model.expert_ffn = 96;
  c.model.vocab = 259;
  c.train.seq_len = 64;
  c.optim.lr = 0.05;
  return c;
}

/// Takes `c` to n ranks that share sequences and experts, with this dispatch.
inline Config on_ranks(Config c, int64_t n, Dispatch dispatch = Dispatch::a2a) {
  c.layout.n = n;
  c.layout.dispatch = dispatch;
  return c;
}

/// Lets routing go to these experts only, through the selection bias (which must be on and not move).
inline Around only_experts(const std::vector<int64_t>& experts) {
  return {.prepare = [experts](Session& session) {
    const ModelConfig& m = session.stage().spec().model;
    std::vector<float> bias(static_cast<size_t>(m.num_experts), -1e6f);
    for (int64_t e : experts) bias[static_cast<size_t>(e)] = 0;
    for (int64_t i = 0; i < m.num_layers; ++i)
      session.stage().device().store(session.stage().router_bias(i), bias.data(), 4 * m.num_experts);
  }};
}
inline void steer_by_bias(Config& c) {
  c.model.router.selection_bias = true;
  c.model.router.bias_rate = 0;
}

/// Random sequences without a target that counts: the main loss is multiplied by zero.
inline BatchSource uncounted(const Config& c) {
  return [S = c.train.seq_len, V = c.model.vocab](std::span<const int64_t> positions) {
    Batch batch = random_batch(positions, S, V);
    std::fill(batch.targets.begin(), batch.targets.end(), -1);
    batch.num_counted = 0;
    return batch;
  };
}

inline double norm_of(const std::vector<float>& v) {
  double sum = 0;
  for (float x : v) sum += double(x) * x;
  return std::sqrt(sum);
}
inline std::string router_of(int64_t layer) {
  return fmt::format("layers.{}.moe.router", layer);
}

/// Loss 1e-5 relative, gradients 1e-4, updates 1e-3, the same routing.
inline void expect_same_training(const Outcome& a, const Outcome& b) {
  ASSERT_EQ(a.steps.size(), b.steps.size());
  for (size_t i = 0; i < b.steps.size(); ++i) {
    EXPECT_NEAR(a.steps[i].loss, b.steps[i].loss, 1e-5 * b.steps[i].loss);
    EXPECT_NEAR(a.steps[i].aux_loss, b.steps[i].aux_loss, 1e-5 * b.steps[i].aux_loss);
    EXPECT_EQ(a.steps[i].expert_load, b.steps[i].expert_load);
    EXPECT_EQ(a.steps[i].updated, b.steps[i].updated);
  }
  const auto [gradient_error, gradient] = worst(a.gradients, b.gradients);
  EXPECT_LT(gradient_error, 1e-4) << gradient;
  const auto [update_error, update] = worst(a.updates, b.updates);
  EXPECT_LT(update_error, 1e-3) << update;
  EXPECT_THAT(a.unlike, testing::IsEmpty());
}

}  // namespace moesaic::test
