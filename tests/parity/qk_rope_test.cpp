#include "ops/qk_rope/qk_rope.h"

#include "support/parity.h"

namespace moesaic::test {
namespace {

// Cosines and sines agree but for a rare last bit; the rest are FP32 sums over a head, and over rows for the gains.
constexpr Bounds kBounds{.bf16 = 2e-4, .f32 = 5e-6};

struct Case {
  int64_t rows = 37, num_heads = 3, num_kv_heads = 2, head_dim = 128;
  DType type = DType::bf16, gain = DType::bf16;
  bool gains = true, in_place = false;
  float theta = 10000;
  int32_t first_position = 0;
  bool long_rope = false;

  int64_t width() const { return (num_heads + 2 * num_kv_heads) * head_dim; }
  std::string str() const {
    return fmt::format(
        "{} rows, {} + 2 * {} heads of {}, {}, gains {} {}, in place {}, positions from {}, "
        "long {}",
        rows, num_heads, num_kv_heads, head_dim, name_of(type), gains, name_of(gain), in_place,
        first_position, long_rope);
  }
  template <class Args>
  void lengthen(Args& args) const {
    if (!long_rope) return;
    args.scale = 1.19;
    for (int64_t i = 0; i < head_dim / 2; ++i) args.factors.push_back(1 + 0.37 * static_cast<double>(i));
  }
  Handle positions(OpRunner& r) const {
    std::vector<int32_t> p(static_cast<size_t>(rows));
    for (size_t t = 0; t < p.size(); ++t) p[t] = first_position + static_cast<int32_t>(t * 7919 % 4099);
    return r.ints("positions", {rows}, p);
  }
};

void expect_forward(const Case& k) {
  SCOPED_TRACE("forward, " + k.str());
  expect_parity(kBounds, [&](OpRunner& r) -> Outputs {
    const Shape shape{k.rows, k.width()};
    ops::QkRopeForward args{.qkv = r.tensor("qkv", shape, fresh_randn(shape.numel(), 1), k.type),
                            .positions = k.positions(r),
                            .num_heads = k.num_heads,
                            .num_kv_heads = k.num_kv_heads,
                            .head_dim = k.head_dim,
                            .theta = k.theta,
                            .eps = 1e-3f};
    args.out = k.in_place ? args.qkv : r.tensor("out", shape, {}, k.type);
    if (k.gains) {
      args.gain_q = r.tensor("gain_q", {k.head_dim}, fresh_randn(k.head_dim, 2), k.gain);
      args.gain_k = r.tensor("gain_k", {k.head_dim}, fresh_randn(k.head_dim, 3), k.gain);
    }
    k.lengthen(args);
    ops::qk_rope_forward(r.program(), Stream::compute, args);
    return {args.out};
  });
}

void expect_backward(const Case& k) {
  SCOPED_TRACE("backward, " + k.str());
  expect_parity(kBounds, [&](OpRunner& r) -> Outputs {
    const Shape shape{k.rows, k.width()};
    ops::QkRopeBackward args{.d_out = r.tensor("d_out", shape, fresh_randn(shape.numel(), 1), k.type),
                             .positions = k.positions(r),
                             .num_heads = k.num_heads,
                             .num_kv_heads = k.num_kv_heads,
                             .head_dim = k.head_dim,
                             .theta = k.theta,
                             .eps = 1e-3f};
    args.d_qkv = k.in_place ? args.d_out : r.tensor("d_qkv", shape, {}, k.type);
    Outputs outputs{args.d_qkv};
    if (k.gains) {
      args.qkv = r.tensor("qkv", shape, fresh_randn(shape.numel(), 4), k.type);
      args.gain_q = r.tensor("gain_q", {k.head_dim}, fresh_randn(k.head_dim, 2), k.gain);
      args.gain_k = r.tensor("gain_k", {k.head_dim}, fresh_randn(k.head_dim, 3), k.gain);
      // What is added to is as large as the sums, or one that happens to be near zero would be all rounding.
      const std::vector<float> before(static_cast<size_t>(k.head_dim), 30);
      args.d_gain_q = r.tensor("d_gain_q", {k.head_dim}, before);
      args.d_gain_k = r.tensor("d_gain_k", {k.head_dim}, before);
      outputs.push_back(args.d_gain_q);
      outputs.push_back(args.d_gain_k);
    }
    k.lengthen(args);
    ops::qk_rope_backward(r.program(), Stream::compute, args);
    return outputs;
  });
}

void expect_both(const Case& k) {
  expect_forward(k);
  expect_backward(k);
}

TEST(QkRopeParity, EveryHeadWidth) {
  // 2 and 6 have less than a pack, 66 more pairs than lanes, 80 and 96 lanes without a pair, 512 is the widest.
  for (const int64_t head_dim : {2, 6, 16, 32, 64, 66, 80, 96, 128, 256, 320, 512})
    for (const DType type : {DType::f32, DType::bf16})
      for (const bool gains : {true, false})
        expect_both({.head_dim = head_dim, .type = type, .gains = gains});
}

TEST(QkRopeParity, HeadCounts) {
  for (const auto& [heads, kv_heads] : {std::pair<int64_t, int64_t>{1, 1}, {5, 1}, {32, 8}, {4, 4}})
    for (const bool in_place : {true, false})
      for (const bool gains : {true, false})
        expect_both(
            {.rows = 21, .num_heads = heads, .num_kv_heads = kv_heads, .gains = gains, .in_place = in_place});
}

TEST(QkRopeParity, RowCountsAndGainTypes) {
  for (const int64_t rows : {1, 3, 4, 5, 263, 265, 1100})
    for (const DType gain : {DType::f32, DType::bf16})
      for (const DType type : {DType::f32, DType::bf16})
        expect_both(
            {.rows = rows, .num_heads = 2, .num_kv_heads = 1, .head_dim = 64, .type = type, .gain = gain});
  expect_both({.rows = 1100, .num_heads = 2, .num_kv_heads = 1, .head_dim = 10});
}

TEST(QkRopeParity, LongRope) {
  // Widths follow each other with and without factors, and with others: nothing may be left of the ones before.
  for (const int64_t head_dim : {2, 66, 96, 128, 512})
    for (const DType type : {DType::f32, DType::bf16})
      for (const bool gains : {true, false})
        for (const bool long_rope : {true, false, true})
          expect_both({.rows = 300,
                       .head_dim = head_dim,
                       .type = type,
                       .gains = gains,
                       .first_position = 130000,
                       .long_rope = long_rope});
}

TEST(QkRopeParity, FarPositionsAndLargeTheta) {
  for (const int32_t first : {131072, 1000000})
    for (const float theta : {100.0f, 1e6f})
      for (const bool gains : {true, false})
        expect_both(
            {.head_dim = 16, .type = DType::f32, .gains = gains, .theta = theta, .first_position = first});
}

}  // namespace
}  // namespace moesaic::test
