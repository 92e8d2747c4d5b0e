// Costs of ops on elements.
#include "base/philox.h"
#include "ops/bias/bias.h"
#include "ops/elementwise/elementwise.h"
#include "ops/initialize/initialize.h"
#include "ops/norm/norm.h"
#include "support/cost_check.h"

namespace moesaic::test {
namespace {

constexpr Stream kStream = Stream::compute;
constexpr DType kTypes[] = {DType::f32, DType::bf16};

Numbers sum(Numbers a, const Numbers& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

TEST(Cost, OfElementwiseOps) {
  for (const DType type : kTypes)
    for (const int64_t count : {5, 12}) {
      CostCheck zero(type), copy(type), add(type), parts(type);
      const Handle y = zero.blank({count});
      ops::zero(zero.program(), kStream, y);
      EXPECT_EQ(zero.left_out([&] { return Outputs{{y, Numbers(static_cast<size_t>(count))}}; }), 0);

      const Handle from = copy.random({count}), to = copy.blank_f32({count});
      ops::copy(copy.program(), kStream, from, to);
      EXPECT_EQ(copy.left_out([&] { return Outputs{{to, copy.numbers(from)}}; }), 0);

      const Handle a = add.random({count}), b = add.random_f32({count}), c = add.blank({count});
      ops::add(add.program(), kStream, a, b, c);
      EXPECT_EQ(add.left_out([&] { return Outputs{{c, sum(add.numbers(a), add.numbers(b))}}; }), 0);

      const Handle own = parts.random({count}), others = parts.random({2, count}),
                   more = parts.random({count}), whole = parts.blank({count});
      ops::sum_parts(parts.program(), kStream,
                     {.own = own, .others = others, .add = more, .y = whole, .rank = 1});
      EXPECT_EQ(parts.left_out([&] {
        const Numbers two = sum(parts.row(others, 0), parts.numbers(own));
        return Outputs{{whole, sum(sum(two, parts.row(others, 1)), parts.numbers(more))}};
      }),
                0);
    }
}

TEST(Cost, OfBiases) {
  for (const DType type : kTypes) {
    CostCheck forward(type), backward(type);
    const Handle x = forward.random({3, 7}), bias = forward.random_f32({7});
    ops::add_bias(forward.program(), kStream, x, bias);
    EXPECT_EQ(forward.left_out([&] {
      Numbers y;
      for (int64_t t = 0; t < 3; ++t)
        for (const Counted value : sum(forward.row(x, t), forward.numbers(bias))) y.push_back(value);
      return Outputs{{x, y}};
    }),
              0);
    const Handle dy = backward.random({3, 7}), d_bias = backward.random_f32({7});
    ops::bias_backward(backward.program(), kStream, dy, d_bias);
    EXPECT_EQ(backward.left_out([&] {
      Numbers d = backward.numbers(d_bias);
      for (int64_t t = 0; t < 3; ++t) d = sum(d, backward.row(dy, t));
      return Outputs{{d_bias, d}};
    }),
              0);
  }
}

TEST(Cost, OfReductions) {
  expect_cost({5, 40}, [](int64_t count) {
    CostCheck c;
    const Handle x = c.random({count}), out = c.blank({1});
    ops::sum_of_squares(c.program(), kStream, x, out);
    return c.left_out([&] {
      Counted squares;
      for (const Counted value : c.numbers(x)) squares += value * value;
      return Outputs{{out, {squares}}};
    });
  });
  expect_cost({5, 40}, [](int64_t count) {
    CostCheck c;
    const Handle x = c.random({count}), out = c.ints("out", {1});
    *c.at<float>(x) = INFINITY;
    ops::count_nonfinite(c.program(), kStream, x, out);
    return c.left_out([&] {
      Counted found;
      for (const Counted value : c.numbers(x)) found += value == INFINITY ? 1 : 0;
      return Outputs{{out, {found}}};
    });
  });
  expect_cost({3, 30}, [](int64_t count) {
    CostCheck c;
    ops::Verdict v{.clip = 1};
    v.parts = c.tensor("parts", {count}, std::vector<float>(size_t(count), 2));
    v.overflow = c.ints("overflow", {2 * count}, std::vector<int32_t>(size_t(2 * count), 0));
    v.counted = c.ints("counted", {1}, {7});
    v.grad_norm = c.blank({1}), v.clip_scale = c.blank({1}), v.ok = c.ints("ok", {1});
    ops::verdict(c.program(), kStream, v);
    return c.left_out([&] {
      Counted squares, fits = 1;
      for (const Counted part : c.numbers(v.parts)) squares += part;
      for (const Counted rows : c.numbers(v.overflow))
        if (rows > 0) fits = 0;
      const Counted norm = sqrt(squares), clip = min(1, Counted(v.clip) / norm);
      return Outputs{{v.grad_norm, {norm}}, {v.clip_scale, {clip}}, {v.ok, {fits}}};
    });
  });
}

TEST(Cost, OfFirstValues) {
  for (const float deviation : {0.0f, 0.5f}) {
    CostCheck c(DType::bf16);
    ops::Initialize args{.y = c.blank({6}), .seed = 3, .stream = 5, .mean = 1, .std = deviation};
    args.remainder = c.raw("remainder", {6}, DType::u16);
    ops::initialize(c.program(), kStream, args);
    EXPECT_EQ(c.left_out([&] {
      Numbers y;
      for (uint64_t i = 0; i < 6; ++i) {
        const PhiloxBlock bits = philox(args.seed, args.stream, i);
        const double u = (bits.words[0] + 0.5) / 4294967296, v = bits.words[1] / 4294967296.0;
        if (deviation == 0)
          y.push_back(args.mean);
        else
          y.push_back(args.mean +
                      deviation * (sqrt(-2 * log(Counted(u))) * cos(6.283185307179586 * Counted(v))));
      }
      return Outputs{{args.y, y}};
    }),
              0);
  }
}

}  // namespace
}  // namespace moesaic::test
