// The optimizer of a session beside the textbook in double precision: same gradients, a few steps.
#include "optim/optimizer.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "support/initial_values.h"
#include "support/layout_runner.h"

namespace moesaic {
namespace {

using namespace test;

/// A parameter row as the test follows it.
struct Reference {
  std::vector<double> weight, first, second;
};

Config config(OptimizerKind kind, ComputeType compute) {
  Config c = small_config();
  c.model.num_layers = 1;
  c.train.compute = compute;
  c.optim.kind = kind;
  c.optim.momentum = 0.9;
  c.optim.weight_decay = 0.1;
  c.optim.eps = 1e-3;
  c.optim.clip = 0.5;  // below the norm of the first steps
  return c;
}

std::vector<float> weights_of(Session& session, const ParameterRow& row) {
  const DType type = session.stage().spec().dtype;
  return fetch_floats(session.stage().device(),
                      session.stage().weights(row.bucket) + row.offset * size_of(type), type,
                      row.shape.numel());
}

/// The FP32 master behind a BF16 weight: upper half and signed remainder.
std::vector<float> masters_of(Session& session, const ParameterRow& row) {
  std::vector<float> values = weights_of(session, row);
  if (session.stage().spec().dtype == DType::f32) return values;
  for (const Optimizer::State& state : session.optimizer().states()) {
    if (state.kind != "remainder") continue;
    std::vector<int16_t> lower(values.size());
    session.stage().device().fetch(
        lower.data(), state.shards[static_cast<size_t>(row.bucket)] + 2 * row.offset, 2 * row.shape.numel());
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = std::bit_cast<float>(std::bit_cast<uint32_t>(values[i]) +
                                       static_cast<uint32_t>(static_cast<int32_t>(lower[i])));
  }
  return values;
}

void update(const Config& c, const ParameterRow& row, const std::vector<float>& grad, double clip, double lr,
            int64_t t, Reference& r) {
  const OptimConfig& o = c.optim;
  const double decay = row.decay ? o.weight_decay : 0;
  for (size_t i = 0; i < grad.size(); ++i) {
    const double g = clip * static_cast<double>(grad[i]);
    double& w = r.weight[i];
    if (o.kind == OptimizerKind::sgd) {
      r.first[i] = o.momentum * r.first[i] + g + decay * w;
      w -= lr * r.first[i];
      continue;
    }
    r.first[i] = o.beta1 * r.first[i] + (1 - o.beta1) * g;
    r.second[i] = o.beta2 * r.second[i] + (1 - o.beta2) * g * g;
    const double m = r.first[i] / (1 - std::pow(o.beta1, static_cast<double>(t)));
    const double v = r.second[i] / (1 - std::pow(o.beta2, static_cast<double>(t)));
    w -= lr * (m / (std::sqrt(v) + o.eps) + decay * w);
  }
}

void follows_the_textbook(const Config& c) {
  constexpr int64_t kSteps = 4;
  run_ranks(c.run, 1, [&](Rank& rank) {
    Session session(c, rank);
    session.initialize();
    const auto& rows = session.stage().table().rows();
    std::vector<Reference> references;
    for (const ParameterRow& row : rows) {
      const std::vector<float> start = masters_of(session, row);
      references.push_back({{start.begin(), start.end()},
                            std::vector<double>(start.size(), 0.0),
                            std::vector<double>(start.size(), 0.0)});
    }
    const BatchSource source = [&](std::span<const int64_t> positions) {
      return random_batch(positions, c.train.seq_len, c.model.vocab);
    };
    for (int64_t t = 1; t <= kSteps; ++t) {
      const double lr = 0.01 / static_cast<double>(t);
      const StepResult result = session.step(source, (t - 1) * c.train.global_batch, lr);
      ASSERT_TRUE(result.updated);
      ASSERT_EQ(session.num_updates(), t);
      Tensors gradients;
      collect_gradients(session, gradients);
      double squares = 0;
      for (const auto& [name, values] : gradients)
        for (float g : values) squares += static_cast<double>(g) * static_cast<double>(g);
      EXPECT_NEAR(result.grad_norm, std::sqrt(squares), 1e-5 * result.grad_norm);
      EXPECT_GT(result.grad_norm, c.optim.clip) << "the test clips nothing";
      const double clip = std::min(1.0, c.optim.clip / std::sqrt(squares));
      for (size_t i = 0; i < rows.size(); ++i) {
        update(c, rows[i], gradients[rows[i].name], clip, lr, t, references[i]);
        std::vector<float> expected(references[i].weight.begin(), references[i].weight.end());
        const std::vector<float> found = masters_of(session, rows[i]);
        EXPECT_LT(relative_error(found, expected), 1e-6) << rows[i].name << " after step " << t;
        if (c.train.compute == ComputeType::f32) continue;
        const std::vector<float> rounded = weights_of(session, rows[i]);
        for (size_t k = 0; k < rounded.size(); ++k)
          ASSERT_LE(std::abs(rounded[k] - found[k]), std::abs(found[k]) / 256) << rows[i].name;
      }
    }
  });
}

TEST(Optimizer, AdamWFollowsTheTextbook) {
  follows_the_textbook(config(OptimizerKind::adamw, ComputeType::f32));
}

TEST(Optimizer, SgdWithMomentumFollowsTheTextbook) {
  follows_the_textbook(config(OptimizerKind::sgd, ComputeType::f32));
}

TEST(Optimizer, Bf16WeightsHaveAnFp32MasterThatFollowsTheTextbook) {
  follows_the_textbook(config(OptimizerKind::adamw, ComputeType::bf16));
  follows_the_textbook(config(OptimizerKind::sgd, ComputeType::bf16));
}

TEST(Optimizer, MastersStartFromTheValuesBeforeRounding) {
  const Config c = config(OptimizerKind::adamw, ComputeType::bf16);
  run_ranks(c.run, 1, [&](Rank& rank) {
    Session session(c, rank);
    session.initialize();
    for (const ParameterRow& row : session.stage().table().rows()) {
      std::vector<float> first(static_cast<size_t>(row.shape.numel()));
      initial_values(row, c.train.seed, 0, row.shape.numel(), first.data());
      EXPECT_TRUE(same_bits(masters_of(session, row), first)) << row.name;
    }
  });
}

TEST(Optimizer, DecayActsOnMatricesOnly) {
  Config c = config(OptimizerKind::sgd, ComputeType::f32);
  c.optim.momentum = 0;
  c.balance.aux_coef = 0;
  run_ranks(c.run, 1, [&](Rank& rank) {
    Session session(c, rank);
    session.initialize();
    Tensors before, after, gradients;
    collect_weights(session, before);
    const BatchSource source = [&](std::span<const int64_t> positions) {
      return random_batch(positions, c.train.seq_len, c.model.vocab);
    };
    session.step(source, 0, 0.1);
    collect_weights(session, after);
    collect_gradients(session, gradients);
    double squares = 0;
    for (const auto& [name, values] : gradients)
      for (float g : values) squares += static_cast<double>(g) * static_cast<double>(g);
    const double clip = std::min(1.0, c.optim.clip / std::sqrt(squares));
    for (const auto& [name, values] : before) {
      const bool norm = name.ends_with("norm");
      std::vector<float> expected;
      for (size_t i = 0; i < values.size(); ++i)
        expected.push_back(
            static_cast<float>(values[i] - 0.1 * (clip * gradients[name][i] + (norm ? 0 : 0.1) * values[i])));
      EXPECT_LT(relative_error(after[name], expected), 1e-6) << name;
    }
  });
}

}  // namespace
}  // namespace moesaic
