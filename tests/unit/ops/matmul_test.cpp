#include "ops/matmul/matmul.h"

#include <gtest/gtest.h>

#include "support/op_runner.h"
#include "support/reference.h"

namespace moesaic::test {
namespace {

struct Size {
  int64_t m, n, k;
};

template <class A, class B>
Doubles loop(bool trans_a, bool trans_b, Size s, const A& a, const B& b) {
  Doubles c(static_cast<size_t>(s.m * s.n));
  for (int64_t i = 0; i < s.m; ++i)
    for (int64_t j = 0; j < s.n; ++j)
      for (int64_t p = 0; p < s.k; ++p)
        c[static_cast<size_t>(i * s.n + j)] +=
            static_cast<double>(a[static_cast<size_t>(trans_a ? p * s.m + i : i * s.k + p)]) *
            static_cast<double>(b[static_cast<size_t>(trans_b ? j * s.k + p : p * s.n + j)]);
  return c;
}

struct Types {
  DType a = DType::f32, b = DType::f32, c = DType::f32;
};

std::vector<float> run(bool trans_a, bool trans_b, Size s, const std::vector<float>& a,
                       const std::vector<float>& b, Types types = {}, int num_threads = 1,
                       const std::vector<float>& add_to = {}) {
  OpRunner r(num_threads);
  const Handle ah = r.tensor("a", trans_a ? Shape{s.k, s.m} : Shape{s.m, s.k}, a, types.a);
  const Handle bh = r.tensor("b", trans_b ? Shape{s.n, s.k} : Shape{s.k, s.n}, b, types.b);
  const Handle ch = r.tensor("c", {s.m, s.n}, add_to, types.c);
  ops::matmul(
      r.program(), Stream::compute,
      {.a = ah, .b = bh, .c = ch, .trans_a = trans_a, .trans_b = trans_b, .accumulate = !add_to.empty()});
  r.run();
  return r.get(ch);
}

TEST(Matmul, EveryTransposeMatchesADoubleLoop) {
  for (const Size s : {Size{1, 1, 1}, Size{1, 7, 5}, Size{3, 5, 7}, Size{17, 33, 65}, Size{70, 19, 1100},
                       Size{300, 65, 129}})
    for (const bool trans_a : {false, true})
      for (const bool trans_b : {false, true}) {
        const auto a = randn(s.m * s.k, 1), b = randn(s.k * s.n, 2);
        EXPECT_LT(relative_error(run(trans_a, trans_b, s, a, b), floats(loop(trans_a, trans_b, s, a, b))),
                  1e-6)
            << s.m << " " << s.n << " " << s.k << " " << trans_a << trans_b;
      }
}

TEST(Matmul, AccumulatesWhenAsked) {
  for (const Size s : {Size{1, 9, 600}, Size{5, 9, 600}, Size{40, 9, 7}})
    for (const bool trans_a : {false, true})
      for (const bool trans_b : {false, true}) {
        const auto a = randn(s.m * s.k, 1), b = randn(s.k * s.n, 2), before = randn(s.m * s.n, 3);
        Doubles expected = loop(trans_a, trans_b, s, a, b);
        for (size_t i = 0; i < expected.size(); ++i) expected[i] += static_cast<double>(before[i]);
        EXPECT_LT(relative_error(run(trans_a, trans_b, s, a, b, {}, 1, before), floats(expected)), 1e-6)
            << s.m;
      }
}

TEST(Matmul, GradientsAreThoseOfTheForwardProduct) {
  const Size s{4, 3, 5};  // y [T 4, N 3] = x [4, K 5] w [3, 5]^T
  const auto x = randn(20, 1), w = randn(15, 2), dy = randn(12, 3);
  const auto dx = run(false, false, {4, 5, 3}, dy, w);
  const auto dw = run(true, false, {3, 5, 4}, dy, x);
  EXPECT_LT(
      relative_error(dx, gradient([&](const Doubles& v) { return dot(loop(false, true, s, v, w), dy); }, x)),
      1e-6);
  EXPECT_LT(
      relative_error(dw, gradient([&](const Doubles& v) { return dot(loop(false, true, s, x, v), dy); }, w)),
      1e-6);
}

TEST(Matmul, Bf16OperandsAreWidenedAndTheResultRoundedOnce) {
  const Size s{300, 9, 70};
  const auto a = as_bf16(randn(s.m * s.k, 1)), b = as_bf16(randn(s.k * s.n, 2)),
             before = as_bf16(randn(s.m * s.n, 3));
  const auto exact = run(false, true, s, a, b), added = run(false, true, s, a, b, {}, 1, before);
  for (const DType a_type : {DType::f32, DType::bf16})
    for (const DType b_type : {DType::f32, DType::bf16}) {
      EXPECT_EQ(run(false, true, s, a, b, {a_type, b_type, DType::f32}), exact);
      EXPECT_EQ(run(false, true, s, a, b, {a_type, b_type, DType::bf16}), as_bf16(exact));
      EXPECT_EQ(run(false, true, s, a, b, {a_type, b_type, DType::bf16}, 1, before), as_bf16(added));
    }
  const auto turned = run(true, false, s, a, b);
  EXPECT_EQ(run(true, false, s, a, b, {DType::bf16, DType::bf16, DType::f32}), turned);
}

TEST(Matmul, TheBitsOfARowDoNotDependOnTheNumberOfRows) {
  const int64_t most = 300, n = 128;  // where oneDNN alone would choose kernels by the number of rows
  for (const bool trans_b : {false, true})
    for (const int64_t k : {7, 512, 1000, 1024}) {
      const auto a = randn(most * k, 1), b = randn(k * n, 2);
      const auto all = run(false, trans_b, {most, n, k}, a, b);
      for (const int64_t m : {1, 2, 5, 15, 16, 17, 64, 200, 257}) {
        const auto part = run(false, trans_b, {m, n, k}, {a.begin(), a.begin() + m * k}, b);
        EXPECT_TRUE(std::equal(part.begin(), part.end(), all.begin())) << trans_b << " k " << k << " m " << m;
      }
    }
}

TEST(Matmul, ThreadsDoNotChangeBits) {
  for (const Size s : {Size{1, 40, 300}, Size{16, 1, 1000}, Size{33, 40, 1024}, Size{600, 24, 1000}})
    for (const bool trans_a : {false, true})
      for (const bool trans_b : {false, true}) {
        const auto a = randn(s.m * s.k, 1), b = randn(s.k * s.n, 2);
        EXPECT_EQ(run(trans_a, trans_b, s, a, b, {}, 2), run(trans_a, trans_b, s, a, b))
            << s.m << trans_a << trans_b;
      }
}

TEST(Matmul, CostIsTwoOperationsPerTermAndEachTensorOnce) {
  OpRunner r;
  const Handle x = r.tensor("x", {6, 5}), w = r.tensor("w", {3, 5}, {}, DType::bf16),
               y = r.tensor("y", {6, 3});
  ops::matmul(r.program(), Stream::compute, {.a = x, .b = w, .c = y, .trans_b = true});
  const Handle dw = r.tensor("dw", {3, 5});
  ops::matmul(r.program(), Stream::compute, {.a = y, .b = x, .c = dw, .trans_a = true, .accumulate = true});
  const auto& nodes = r.program().nodes();
  EXPECT_EQ(nodes[0].cost.work, Work::matmul);
  EXPECT_EQ(nodes[0].cost.operations, 2 * 6 * 3 * 5);
  EXPECT_EQ(nodes[0].cost.bytes, 6 * 5 * 4 + 3 * 5 * 2 + 6 * 3 * 4);
  EXPECT_EQ(nodes[1].cost.operations, 2 * 6 * 3 * 5);
  EXPECT_EQ(nodes[1].cost.bytes, 6 * 3 * 4 + 6 * 5 * 4 + 2 * 3 * 5 * 4);
}

TEST(Matmul, ShapesThatDoNotFitAreABug) {
  OpRunner r;
  const Handle a = r.tensor("a", {6, 5}), b = r.tensor("b", {4, 3}), c = r.tensor("c", {6, 3});
  EXPECT_DEATH(ops::matmul(r.program(), Stream::compute, {.a = a, .b = b, .c = c}),
               "\\[6, 5\\] times \\[4, 3\\]");
}

}  // namespace
}  // namespace moesaic::test
