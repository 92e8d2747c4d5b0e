#include "ops/optimizer/optimizer.h"

#include <bit>

#include "support/parity.h"

namespace moesaic::test {
namespace {

struct Case {
  int64_t count = 9001;
  DType type = DType::bf16;
  int64_t first = 0;  // of a view, so that accesses are not aligned
  std::vector<ops::ElementRange> decay;
  enum { adamw, sgd, momentum } rule = adamw;
  int32_t ok = 1;
};

/// A shard with its state on one device. The masters are any FP32 numbers.
class Shard {
 public:
  Shard(DeviceKind kind, const Case& k) : runner_(kind), case_(k) {
    const int64_t all = k.count + k.first;
    param_ = runner_.raw("param", {all}, k.type);
    if (k.type == DType::bf16) remainder_ = runner_.raw("remainder", {all}, DType::u16);
    const auto masters = fresh_randn(all, 1);
    for (size_t i = 0; i < masters.size(); ++i) {
      const auto bits = std::bit_cast<uint32_t>(masters[i]);
      if (k.type == DType::f32) {
        runner_.at<float>(param_)[i] = masters[i];
        continue;
      }
      runner_.at<bf16>(param_)[i].bits = static_cast<uint16_t>((bits + 0x8000u) >> 16);
      runner_.at<uint16_t>(remainder_)[i] = static_cast<uint16_t>(bits);
    }
    ops::OptimizerShard shard{
        .param = view(param_),
        .remainder = remainder_ ? view(remainder_) : Handle{},
        .grad = view(runner_.tensor("grad", {all}, fresh_randn(all, 2, 0.1f))),
        .scalars = runner_.tensor("scalars", {3}, {3e-3f, 1 - 0.9f * 0.9f, 1 - 0.95f * 0.95f}),
        .clip_scale = runner_.tensor("clip_scale", {1}, {0.4f}),
        .ok = runner_.ints("ok", {1}, {k.ok}),
        .decay = k.decay};
    m_ = runner_.tensor("m", {all}, fresh_randn(all, 3, 0.01f));
    auto squares = fresh_randn(all, 4, 0.01f);
    for (float& x : squares) x *= x;
    v_ = runner_.tensor("v", {all}, squares);
    if (k.rule == Case::adamw)
      ops::adamw(runner_.program(), Stream::compute,
                 {.shard = shard, .m = view(m_), .v = view(v_), .weight_decay = 0.1f});
    else
      ops::sgd(runner_.program(), Stream::compute,
               {.shard = shard,
                .momentum_buffer = k.rule == Case::momentum ? view(m_) : Handle{},
                .momentum = k.rule == Case::momentum ? 0.9f : 0,
                .weight_decay = 0.1f});
    runner_.run();
  }

  std::vector<float> masters() {
    if (!remainder_) return runner_.get(param_);
    std::vector<float> list;
    for (int64_t i = 0; i < case_.count + case_.first; ++i) {
      const uint32_t high = runner_.at<bf16>(param_)[i].bits;
      const auto low = static_cast<int16_t>(runner_.at<uint16_t>(remainder_)[i]);
      list.push_back(std::bit_cast<float>((high << 16) + static_cast<uint32_t>(int32_t{low})));
    }
    return list;
  }
  std::vector<float> m() { return runner_.get(m_); }
  std::vector<float> v() { return runner_.get(v_); }

 private:
  Handle view(Handle of) { return runner_.program().view(of, case_.first, {case_.count}); }

  OpRunner runner_;
  Case case_;
  Handle param_, remainder_, m_, v_;
};

/// Masters are compared, not remainders: one last bit makes another remainder.
void expect_same_step(const Case& k) {
  if (num_cuda_devices() == 0) GTEST_SKIP() << "no GPU";
  SCOPED_TRACE(fmt::format("MOESAIC_TEST_SEED={}: {} {} from {}, {} decay ranges, rule {}", test_seed(),
                           k.count, name_of(k.type), k.first, k.decay.size(), static_cast<int>(k.rule)));
  Shard cpu(DeviceKind::cpu, k), gpu(DeviceKind::cuda, k), again(DeviceKind::cuda, k);
  // The step is 1e-3 of a weight and right to 1e-6 of itself.
  EXPECT_LT(relative_error(gpu.masters(), cpu.masters()), 1e-7);
  EXPECT_LT(relative_error(gpu.m(), cpu.m()), 1e-6);
  EXPECT_LT(relative_error(gpu.v(), cpu.v()), 1e-6);
  EXPECT_EQ(again.masters(), gpu.masters());
  EXPECT_EQ(again.m(), gpu.m());
}

/// Ranges of random lengths from 1 on, with gaps from 0 on.
std::vector<ops::ElementRange> random_ranges(int64_t count, int64_t longest, uint64_t seed) {
  std::mt19937_64 draw(test_seed() + seed);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(draw() % static_cast<uint64_t>(n)); };
  std::vector<ops::ElementRange> ranges;
  for (int64_t at = below(longest); at < count; at += below(longest)) {
    const int64_t end = std::min(count, at + 1 + below(longest));
    ranges.push_back({at, end});
    at = end;
  }
  return ranges;
}

TEST(OptimizerParity, EveryRuleTypeAndLength) {
  for (const auto rule : {Case::adamw, Case::sgd, Case::momentum})
    for (const DType type : {DType::f32, DType::bf16})
      for (const int64_t count : {1, 3, 4, 1023, 9001, 1000000})
        expect_same_step({.count = count, .type = type, .decay = {{0, (count + 1) / 2}}, .rule = rule});
}

TEST(OptimizerParity, AnyNumberOfDecayRanges) {
  // A launch takes 64 of them.
  for (const auto rule : {Case::adamw, Case::momentum})
    for (const DType type : {DType::f32, DType::bf16}) {
      expect_same_step({.type = type, .rule = rule});
      expect_same_step({.type = type, .decay = {{0, 9001}}, .rule = rule});
      expect_same_step(
          {.type = type, .decay = {{0, 1}, {2, 3}, {3, 4}, {4, 4500}, {4501, 9000}}, .rule = rule});
      for (const int64_t longest : {2, 3, 5, 100, 1000})
        expect_same_step({.type = type, .decay = random_ranges(9001, longest, 7), .rule = rule});
      for (const int64_t num_ranges : {63, 64, 65, 128, 129}) {
        std::vector<ops::ElementRange> ranges;
        for (int64_t i = 0; i < num_ranges; ++i) ranges.push_back({i, i + 1});
        expect_same_step({.count = num_ranges + 50, .type = type, .decay = ranges, .rule = rule});
        for (ops::ElementRange& range : ranges) range = {70 * range.begin + 1, 70 * range.begin + 70};
        expect_same_step({.count = 70 * num_ranges + 5, .type = type, .decay = ranges, .rule = rule});
      }
    }
}

TEST(OptimizerParity, UnalignedShards) {
  for (const int64_t first : {1, 2, 3, 4})
    for (const DType type : {DType::f32, DType::bf16})
      expect_same_step({.type = type, .first = first, .decay = random_ranges(9001, 100, 8)});
}

TEST(OptimizerParity, NothingIsTouchedWhenTheStepIsNotOk) {
  for (const auto rule : {Case::adamw, Case::sgd, Case::momentum})
    for (const DType type : {DType::f32, DType::bf16})
      expect_same_step({.type = type, .decay = {{0, 5000}}, .rule = rule, .ok = 0});
}

}  // namespace
}  // namespace moesaic::test
