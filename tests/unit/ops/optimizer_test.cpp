#include "ops/optimizer/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/op_runner.h"

namespace moesaic {
namespace {

using test::OpRunner;

constexpr int64_t kCount = 9001;  // several blocks and a rest
constexpr float kLr = 3e-3f, kClip = 0.4f, kBeta1 = 0.9f, kBeta2 = 0.95f, kEps = 1e-8f, kDecay = 0.1f;

/// One shard, its state, and a way to take steps on it.
class Shard {
 public:
  Shard(DType type, const std::vector<float>& masters, int threads = 1) : runner_(threads) {
    shard_.param = runner_.raw("param", {kCount}, type);
    if (type == DType::bf16) shard_.remainder = runner_.raw("remainder", {kCount}, DType::u16);
    shard_.grad = runner_.tensor("grad", {kCount});
    shard_.scalars = runner_.tensor("scalars", {3});
    shard_.clip_scale = runner_.tensor("clip_scale", {1}, {kClip});
    shard_.ok = runner_.ints("ok", {1}, {1});
    m_ = runner_.tensor("m", {kCount}, std::vector<float>(kCount, 0));
    v_ = runner_.tensor("v", {kCount}, std::vector<float>(kCount, 0));
    for (size_t i = 0; i < kCount; ++i) {
      if (i % 3 == 0) shard_.decay.push_back({static_cast<int64_t>(i), static_cast<int64_t>(i) + 1});
      if (type == DType::f32) {
        runner_.at<float>(shard_.param)[i] = masters[i];
        continue;
      }
      // Masters given as numbers of 16 bits, so that the remainder begins at zero.
      runner_.at<bf16>(shard_.param)[i] = bf16(masters[i]);
      runner_.at<uint16_t>(shard_.remainder)[i] = 0;
    }
  }

  void record_adamw() {
    ops::adamw(runner_.program(), Stream::compute,
               {.shard = shard_,
                .m = m_,
                .v = v_,
                .beta1 = kBeta1,
                .beta2 = kBeta2,
                .eps = kEps,
                .weight_decay = kDecay});
  }
  /// The momentum is kept in m.
  void record_sgd(float momentum) {
    ops::sgd(runner_.program(), Stream::compute,
             {.shard = shard_,
              .momentum_buffer = momentum != 0 ? m_ : Handle{},
              .momentum = momentum,
              .weight_decay = kDecay});
  }
  void step(int64_t t, int32_t ok = 1) {
    runner_.set(shard_.grad, test::randn(kCount, static_cast<uint64_t>(t), 0.1f));
    runner_.set(shard_.scalars, {kLr, static_cast<float>(1 - std::pow(kBeta1, t)),
                                 static_cast<float>(1 - std::pow(kBeta2, t))});
    *runner_.at<int32_t>(shard_.ok) = ok;
    runner_.run();
  }

  /// By the definition: bits of the parameter * 2^16 + remainder as a signed number.
  std::vector<float> masters() {
    if (!shard_.remainder) return runner_.get(shard_.param);
    std::vector<float> list;
    for (size_t i = 0; i < kCount; ++i) {
      const int64_t high = runner_.at<bf16>(shard_.param)[i].bits;
      const auto low = static_cast<int16_t>(runner_.at<uint16_t>(shard_.remainder)[i]);
      list.push_back(std::bit_cast<float>(static_cast<uint32_t>(high * 65536 + low)));
    }
    return list;
  }
  std::vector<float> params() { return runner_.get(shard_.param); }
  std::vector<float> m() { return runner_.get(m_); }
  std::vector<float> v() { return runner_.get(v_); }
  double bytes() { return runner_.program().nodes()[0].cost.bytes; }

 private:
  OpRunner runner_;
  ops::OptimizerShard shard_;
  Handle m_, v_;
};

/// Numbers that 16 bits hold.
std::vector<float> first_masters() {
  auto list = test::randn(kCount, 77);
  for (float& x : list) x = static_cast<float>(bf16(x));
  return list;
}

TEST(AdamW, FollowsADoubleReference) {
  Shard shard(DType::f32, first_masters());
  shard.record_adamw();
  std::vector<double> w, m(kCount, 0), v(kCount, 0);
  for (float x : first_masters()) w.push_back(x);
  for (int64_t t = 1; t <= 5; ++t) {
    shard.step(t);
    const auto grad = test::randn(kCount, static_cast<uint64_t>(t), 0.1f);
    for (size_t i = 0; i < kCount; ++i) {
      const double d = double{kClip} * grad[i];
      m[i] = kBeta1 * m[i] + (1.0 - kBeta1) * d;
      v[i] = kBeta2 * v[i] + (1.0 - kBeta2) * d * d;
      const double step =
          m[i] / (1 - std::pow(kBeta1, t)) / (std::sqrt(v[i] / (1 - std::pow(kBeta2, t))) + kEps);
      w[i] -= kLr * (step + (i % 3 == 0 ? kDecay * w[i] : 0));
    }
  }
  const std::vector<float> moved(w.begin(), w.end());
  EXPECT_LT(test::relative_error(shard.params(), moved), 3e-7);
  EXPECT_LT(test::relative_error(shard.m(), {m.begin(), m.end()}), 1e-6);
  EXPECT_LT(test::relative_error(shard.v(), {v.begin(), v.end()}), 1e-6);
}

TEST(Sgd, FollowsADoubleReferenceWithAndWithoutMomentum) {
  for (float momentum : {0.0f, 0.9f}) {
    Shard shard(DType::f32, first_masters());
    shard.record_sgd(momentum);
    std::vector<double> w, u(kCount, 0);
    for (float x : first_masters()) w.push_back(x);
    for (int64_t t = 1; t <= 5; ++t) {
      shard.step(t);
      const auto grad = test::randn(kCount, static_cast<uint64_t>(t), 0.1f);
      for (size_t i = 0; i < kCount; ++i) {
        u[i] = momentum * u[i] + (double{kClip} * grad[i] + (i % 3 == 0 ? kDecay * w[i] : 0));
        w[i] -= kLr * u[i];
      }
    }
    EXPECT_LT(test::relative_error(shard.params(), {w.begin(), w.end()}), 3e-7) << momentum;
  }
}

TEST(Optimizer, Bf16WithRemainderFollowsTheF32TrajectoryExactly) {
  for (int kind = 0; kind < 3; ++kind) {
    Shard full(DType::f32, first_masters()), split(DType::bf16, first_masters());
    for (Shard* shard : {&full, &split}) {
      if (kind == 0) shard->record_adamw();
      if (kind == 1) shard->record_sgd(0);
      if (kind == 2) shard->record_sgd(0.9f);
    }
    for (int64_t t = 1; t <= 8; ++t) {
      full.step(t);
      split.step(t);
      ASSERT_EQ(full.params(), split.masters()) << "kind " << kind << " step " << t;
      ASSERT_EQ(full.m(), split.m());
    }
    const auto masters = split.masters(), params = split.params();
    int64_t moved_within_half = 0;
    for (size_t i = 0; i < kCount; ++i) {
      // Nearest: no neighbour of 16 bits is closer.
      const auto up = std::bit_cast<float>(std::bit_cast<uint32_t>(params[i]) + 0x10000u);
      const auto down = std::bit_cast<float>(std::bit_cast<uint32_t>(params[i]) - 0x10000u);
      const double distance = std::abs(double{masters[i]} - params[i]);
      EXPECT_LE(distance, std::abs(double{masters[i]} - up));
      EXPECT_LE(distance, std::abs(double{masters[i]} - down));
      moved_within_half += distance > 0;
    }
    EXPECT_GT(moved_within_half, kCount / 2) << "the remainder must carry what 16 bits cannot";
  }
}

TEST(Optimizer, TheParameterIsTheMasterRoundedToNearestTiesAwayFromZero) {
  // Steps of lr * grad alone, chosen to end at exact ties and next to them: 1 + 2^-7 is the next number of 16 bits.
  OpRunner r;
  const int64_t N = 4;
  ops::OptimizerShard s;
  s.param = r.tensor("param", {N}, {1, -1, 1, 1}, DType::bf16);
  s.remainder = r.raw("remainder", {N}, DType::u16);
  const float half = std::ldexp(1.0f, -8);
  s.grad = r.tensor("grad", {N}, {-half, half, -half + std::ldexp(1.0f, -20), -3 * half});
  s.decay = {{0, N}};
  s.scalars = r.tensor("scalars", {3}, {1, 1, 1});
  s.clip_scale = r.tensor("clip_scale", {1}, {1});
  s.ok = r.ints("ok", {1}, {1});
  ops::sgd(r.program(), Stream::compute, {.shard = s});
  r.run();
  EXPECT_EQ(r.get(s.param), (std::vector<float>{1 + 2 * half, -1 - 2 * half, 1, 1 + 4 * half}));
}

TEST(Optimizer, NothingIsTouchedWhenTheStepIsNotOk) {
  for (DType type : {DType::f32, DType::bf16})
    for (bool adam : {false, true}) {
      Shard shard(type, first_masters());
      adam ? shard.record_adamw() : shard.record_sgd(0.9f);
      shard.step(1);
      const auto params = shard.params(), masters = shard.masters(), m = shard.m(), v = shard.v();
      shard.step(2, 0);
      EXPECT_EQ(shard.params(), params);
      EXPECT_EQ(shard.masters(), masters);
      EXPECT_EQ(shard.m(), m);
      EXPECT_EQ(shard.v(), v);
      shard.step(2);
      EXPECT_NE(shard.masters(), masters);
    }
}

TEST(Optimizer, HasTheSameBitsForAnyNumberOfThreads) {
  Shard one(DType::bf16, first_masters(), 1), two(DType::bf16, first_masters(), 2);
  for (Shard* shard : {&one, &two}) {
    shard->record_adamw();
    shard->step(1);
  }
  EXPECT_EQ(one.masters(), two.masters());
}

TEST(Optimizer, CostReadsAndWritesTheState) {
  Shard full(DType::f32, first_masters()), split(DType::bf16, first_masters());
  full.record_adamw();
  split.record_sgd(0);
  const double rest = 5 * 4;  // scalars, clip_scale, ok
  EXPECT_EQ(full.bytes(), kCount * (2 * 4 + 4 + 2 * 8) + rest);
  EXPECT_EQ(split.bytes(), kCount * (2 * 2 + 2 * 2 + 4) + rest);
}

}  // namespace
}  // namespace moesaic
