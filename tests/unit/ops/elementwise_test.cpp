#include "ops/elementwise/elementwise.h"

#include <gtest/gtest.h>

#include "support/op_runner.h"
#include "support/reference.h"

namespace moesaic::test {
namespace {

constexpr int64_t kLong = 100001;  // more than one piece of work

TEST(Elementwise, ZeroClearsEveryElementOfAnyType) {
  for (const int num_threads : {1, 2}) {
    OpRunner r(num_threads);
    const Handle f = r.tensor("f", {kLong}), h = r.tensor("h", {3, 5}, {}, DType::bf16),
                 i = r.ints("i", {kLong});
    for (Handle y : {f, h, i}) ops::zero(r.program(), Stream::compute, y);
    r.run();
    EXPECT_EQ(r.get(f), std::vector<float>(kLong, 0.0f));
    EXPECT_EQ(r.get(h), std::vector<float>(15, 0.0f));
    EXPECT_EQ(r.get_ints(i), std::vector<int32_t>(kLong, 0));
  }
}

TEST(Elementwise, CopyConvertsToTheNearest) {
  for (const int num_threads : {1, 2}) {
    OpRunner r(num_threads);
    auto values = randn(kLong, 1);
    values[0] = 1 + 0x1p-8f;      // half way: to even, down
    values[1] = 1 + 3 * 0x1p-8f;  // half way: to even, up
    const Handle x = r.tensor("x", {kLong}, values), same = r.tensor("same", {kLong}),
                 wide = r.tensor("wide", {kLong});
    const Handle half = r.tensor("half", {1, kLong}, {}, DType::bf16),
                 again = r.tensor("again", {kLong}, {}, DType::bf16);
    const Handle i = r.ints("i", {2}, {5, -7}), j = r.ints("j", {2});
    ops::copy(r.program(), Stream::compute, x, same);
    ops::copy(r.program(), Stream::compute, x, half);
    ops::copy(r.program(), Stream::compute, half, wide);
    ops::copy(r.program(), Stream::compute, half, again);
    ops::copy(r.program(), Stream::compute, i, j);
    r.run();
    EXPECT_EQ(r.get(same), values);
    EXPECT_EQ(r.get(half), as_bf16(values));
    EXPECT_EQ(r.get(half)[0], 1);
    EXPECT_EQ(r.get(half)[1], 1 + 4 * 0x1p-8f);
    EXPECT_EQ(r.get(wide), as_bf16(values));
    EXPECT_EQ(r.get(again), as_bf16(values));
    EXPECT_EQ(r.get_ints(j), (std::vector<int32_t>{5, -7}));
  }
}

TEST(Elementwise, AddRoundsOnceForAnyTypesAndInPlace) {
  const auto a = as_bf16(randn(kLong, 1)), b = as_bf16(randn(kLong, 2));
  std::vector<float> sum;
  for (size_t i = 0; i < a.size(); ++i) sum.push_back(a[i] + b[i]);
  for (const int num_threads : {1, 2})
    for (const DType a_type : {DType::f32, DType::bf16})
      for (const DType b_type : {DType::f32, DType::bf16})
        for (const DType y_type : {DType::f32, DType::bf16}) {
          OpRunner r(num_threads);
          const Handle ah = r.tensor("a", {kLong}, a, a_type), bh = r.tensor("b", {kLong}, b, b_type);
          const Handle y = r.tensor("y", {kLong}, {}, y_type);
          ops::add(r.program(), Stream::compute, ah, bh, y);
          ops::add(r.program(), Stream::compute, ah, bh, ah);
          r.run();
          EXPECT_EQ(r.get(y), y_type == DType::bf16 ? as_bf16(sum) : sum);
          EXPECT_EQ(r.get(ah), a_type == DType::bf16 ? as_bf16(sum) : sum);
        }
}

TEST(Elementwise, SumPartsAddsInOrderAndRoundsOnce) {
  constexpr int64_t kParts = 3;
  for (const DType type : {DType::f32, DType::bf16})
    for (const bool with_add : {false, true})
      for (int64_t rank = 0; rank < kParts; ++rank) {
        const auto values = as_bf16(randn(kParts * kLong, 1)), add = as_bf16(randn(kLong, 2));
        std::vector<float> own, others, sum(kLong);
        for (int64_t p = 0; p < kParts; ++p)
          for (int64_t i = 0; i < kLong; ++i) {
            const float x = values[static_cast<size_t>(p * kLong + i)];
            (p == rank ? own : others).push_back(x);
            sum[static_cast<size_t>(i)] += x;
          }
        for (size_t i = 0; with_add && i < sum.size(); ++i) sum[i] += add[i];
        OpRunner r(2);
        ops::SumParts args{.rank = rank};
        args.own = r.tensor("own", {kLong}, own, type);
        args.others = r.tensor("others", {kParts - 1, kLong}, others, type);
        if (with_add) args.add = r.tensor("add", {kLong}, add, type);
        args.y = r.tensor("y", {kLong}, {}, type);
        ops::sum_parts(r.program(), Stream::compute, args);
        r.run();
        EXPECT_EQ(r.get(args.y), type == DType::bf16 ? as_bf16(sum) : sum) << rank;
        EXPECT_EQ(r.program().nodes()[0].cost.bytes,
                  static_cast<double>(kLong * size_of(type) * (kParts + 1 + with_add)));
      }
}

TEST(Elementwise, CostIsEachTensorOnce) {
  OpRunner r;
  const Handle a = r.tensor("a", {4, 6}), b = r.tensor("b", {4, 6}, {}, DType::bf16),
               y = r.tensor("y", {4, 6});
  ops::zero(r.program(), Stream::compute, b);
  ops::copy(r.program(), Stream::compute, a, b);
  ops::add(r.program(), Stream::compute, a, b, y);
  const auto& nodes = r.program().nodes();
  EXPECT_EQ(nodes[0].cost.bytes, 24 * 2);
  EXPECT_EQ(nodes[1].cost.bytes, 24 * 4 + 24 * 2);
  EXPECT_EQ(nodes[2].cost.bytes, 24 * 4 + 24 * 2 + 24 * 4);
  EXPECT_EQ(nodes[2].cost.operations, 24);
}

}  // namespace
}  // namespace moesaic::test
