// Costs of optimizer steps.
#include "ops/optimizer/optimizer.h"
#include "support/cost_check.h"

namespace moesaic::test {
namespace {

constexpr Stream kStream = Stream::compute;
constexpr int64_t kCount = 12;

/// A shard whose first `decayed` elements decay. A bf16 one begins with remainders of zero.
ops::OptimizerShard make_shard(CostCheck& c, bool split, int64_t decayed) {
  ops::OptimizerShard s{.param = c.random({kCount}), .grad = c.random_f32({kCount})};
  if (split) s.remainder = c.raw("remainder", {kCount}, DType::u16);
  s.scalars = c.tensor("scalars", {3}, {0.1f, 0.3f, 0.2f});
  s.clip_scale = c.tensor("clip", {1}, {0.5f});
  s.ok = c.ints("ok", {1}, {1});
  if (decayed > 0) s.decay = {{0, decayed}};
  return s;
}

TEST(Cost, OfOptimizers) {
  for (const bool split : {false, true})
    for (const int64_t decayed : {0, 5, 12}) {
      const DType type = split ? DType::bf16 : DType::f32;
      CostCheck a(type);
      ops::AdamW adam{.shard = make_shard(a, split, decayed), .weight_decay = 0.1f};
      adam.m = a.random_f32({kCount});
      adam.v = a.tensor("v", {kCount}, std::vector<float>(kCount, 0.4f));
      ops::adamw(a.program(), kStream, adam);
      const double left_out = a.left_out([&] {
        Numbers w = a.numbers(adam.shard.param), m = a.numbers(adam.m), v = a.numbers(adam.v);
        const Numbers grad = a.numbers(adam.shard.grad), scalars = a.numbers(adam.shard.scalars);
        const double rest1 = 1 - adam.beta1, rest2 = 1 - adam.beta2;
        for (size_t i = 0; i < kCount; ++i) {
          const Counted g = a.numbers(adam.shard.clip_scale)[0] * grad[i];
          m[i] = adam.beta1 * m[i] + rest1 * g;
          v[i] = adam.beta2 * v[i] + rest2 * g * g;
          Counted step = m[i] / scalars[1] / (sqrt(v[i] / scalars[2]) + adam.eps);
          if (i < static_cast<size_t>(decayed)) step += adam.weight_decay * w[i];
          w[i] -= scalars[0] * step;
        }
        return Outputs{{adam.shard.param, w}, {adam.m, m}, {adam.v, v}};
      });
      EXPECT_EQ(left_out, 0);

      for (const float momentum : {0.0f, 0.9f}) {
        CostCheck s(type);
        ops::Sgd sgd{.shard = make_shard(s, split, decayed), .momentum = momentum, .weight_decay = 0.1f};
        if (momentum != 0) sgd.momentum_buffer = s.random_f32({kCount});
        ops::sgd(s.program(), kStream, sgd);
        EXPECT_EQ(s.left_out([&] {
          Numbers w = s.numbers(sgd.shard.param), u = s.numbers(sgd.momentum_buffer);
          const Numbers grad = s.numbers(sgd.shard.grad);
          for (size_t i = 0; i < kCount; ++i) {
            Counted step = s.numbers(sgd.shard.clip_scale)[0] * grad[i];
            if (i < static_cast<size_t>(decayed)) step += sgd.weight_decay * w[i];
            if (momentum != 0) step = u[i] = momentum * u[i] + step;
            w[i] -= s.numbers(sgd.shard.scalars)[0] * step;
          }
          Outputs outputs{{sgd.shard.param, w}};
          if (momentum != 0) outputs.push_back({sgd.momentum_buffer, u});
          return outputs;
        }),
                  0);
      }
    }
}

}  // namespace
}  // namespace moesaic::test
