#include "ops/attention/attention.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/op_runner.h"

namespace moesaic {
namespace {

using test::OpRunner;

struct Sizes {
  int64_t B, S, H, G, A;
  int64_t row() const { return (H + 2 * G) * A; }
  int64_t inputs() const { return B * S * row(); }
  int64_t outputs() const { return B * S * H * A; }
};

struct Result {
  std::vector<float> o, lse, d_qkv;
};

/// Forward and backward of the ops. doc_start may be empty.
Result run_ops(const Sizes& z, const std::vector<float>& qkv, const std::vector<float>& d_o,
               const std::vector<int32_t>& doc_start, DType type = DType::f32, int threads = 1) {
  OpRunner r(threads);
  const Handle in = r.tensor("qkv", {z.B, z.S, z.row()}, qkv, type);
  const Handle starts = doc_start.empty() ? Handle{} : r.ints("doc_start", {z.B, z.S}, doc_start);
  const Handle o = r.tensor("o", {z.B, z.S, z.H * z.A}, {}, type), lse = r.tensor("lse", {z.B, z.H, z.S});
  ops::attention_forward(r.program(), Stream::compute,
                         {.qkv = in,
                          .doc_start = starts,
                          .o = o,
                          .lse = lse,
                          .num_heads = z.H,
                          .num_kv_heads = z.G,
                          .head_dim = z.A});
  const Handle d_out = r.tensor("d_o", {z.B, z.S, z.H * z.A}, d_o, type);
  const Handle d_qkv = r.tensor("d_qkv", {z.B, z.S, z.row()}, {}, type);
  ops::attention_backward(r.program(), Stream::compute,
                          {.d_o = d_out,
                           .qkv = in,
                           .o = o,
                           .lse = lse,
                           .doc_start = starts,
                           .d_qkv = d_qkv,
                           .num_heads = z.H,
                           .num_kv_heads = z.G,
                           .head_dim = z.A});
  r.run();
  return {r.get(o), r.get(lse), r.get(d_qkv)};
}

/// The whole S x S softmax in FP64, and its gradient when d_o is given.
struct Reference {
  std::vector<double> o, lse, d_qkv;
};

Reference reference(const Sizes& z, const std::vector<double>& qkv, const std::vector<float>& d_o,
                    const std::vector<int32_t>& doc_start) {
  Reference r;
  r.o.assign(static_cast<size_t>(z.outputs()), 0);
  r.lse.assign(static_cast<size_t>(z.B * z.H * z.S), 0);
  r.d_qkv.assign(qkv.size(), 0);
  const double scale = 1 / std::sqrt(static_cast<double>(z.A));
  for (int64_t b = 0; b < z.B; ++b)
    for (int64_t h = 0; h < z.H; ++h)
      for (int64_t i = 0; i < z.S; ++i) {
        const auto at = [&](int64_t position, int64_t head) {
          return static_cast<size_t>((b * z.S + position) * z.row() + head * z.A);
        };
        const int64_t key_head = z.H + h / (z.H / z.G), value_head = key_head + z.G;
        const auto out = static_cast<size_t>(((b * z.S + i) * z.H + h) * z.A);
        const auto A = static_cast<size_t>(z.A);
        const int64_t first = doc_start.empty() ? 0 : doc_start[static_cast<size_t>(b * z.S + i)];
        std::vector<double> p;
        double sum = 0;
        for (int64_t j = first; j <= i; ++j) {
          double score = 0;
          for (size_t a = 0; a < A; ++a) score += scale * qkv[at(i, h) + a] * qkv[at(j, key_head) + a];
          p.push_back(std::exp(score));
          sum += p.back();
        }
        r.lse[static_cast<size_t>((b * z.H + h) * z.S + i)] = std::log(sum);
        for (int64_t j = first; j <= i; ++j) {
          double& prob = p[static_cast<size_t>(j - first)];
          prob /= sum;
          for (size_t a = 0; a < A; ++a) r.o[out + a] += prob * qkv[at(j, value_head) + a];
        }
        double delta = 0;
        for (size_t a = 0; a < A; ++a) delta += d_o[out + a] * r.o[out + a];
        for (int64_t j = first; j <= i; ++j) {
          const double prob = p[static_cast<size_t>(j - first)];
          double d_prob = 0;
          for (size_t a = 0; a < A; ++a) d_prob += d_o[out + a] * qkv[at(j, value_head) + a];
          const double d_score = scale * prob * (d_prob - delta);
          for (size_t a = 0; a < A; ++a) {
            r.d_qkv[at(i, h) + a] += d_score * qkv[at(j, key_head) + a];
            r.d_qkv[at(j, key_head) + a] += d_score * qkv[at(i, h) + a];
            r.d_qkv[at(j, value_head) + a] += prob * d_o[out + a];
          }
        }
      }
  return r;
}

/// Documents of random lengths; empty when there are none.
std::vector<int32_t> documents(const Sizes& z, bool packed) {
  std::vector<int32_t> starts;
  for (int64_t b = 0; packed && b < z.B; ++b)
    for (int64_t i = 0, start = 0; i < z.S; ++i) {
      if (random_below(50, 7, static_cast<uint64_t>(b), static_cast<uint64_t>(i)) == 0) start = i;
      starts.push_back(static_cast<int32_t>(start));
    }
  return starts;
}

std::vector<float> narrowed(const std::vector<double>& v) {
  return {v.begin(), v.end()};
}

std::vector<float> rounded(std::vector<float> v) {
  for (float& x : v) x = static_cast<float>(bf16(x));
  return v;
}

constexpr Sizes kShapes[] = {{2, 1, 2, 1, 8},    {1, 7, 2, 1, 4},    {2, 33, 4, 2, 16},  {1, 64, 2, 2, 32},
                             {1, 100, 6, 2, 24}, {1, 130, 2, 1, 64}, {1, 70, 3, 1, 128}, {1, 32, 1, 1, 2}};

TEST(Attention, MatchesTheFullSoftmaxInDoubleForAnyShapeAndPacking) {
  for (const Sizes& z : kShapes)
    for (bool packed : {false, true}) {
      SCOPED_TRACE(fmt::format("B {} S {} H {} G {} A {} packed {}", z.B, z.S, z.H, z.G, z.A, packed));
      const auto qkv = test::randn(z.inputs(), 1, 1.5f), d_o = test::randn(z.outputs(), 2);
      const auto starts = documents(z, packed);
      const Result got = run_ops(z, qkv, d_o, starts);
      const Reference want = reference(z, {qkv.begin(), qkv.end()}, d_o, starts);
      EXPECT_LT(test::relative_error(got.o, narrowed(want.o)), 1e-6);
      EXPECT_LT(test::relative_error(got.lse, narrowed(want.lse)), 1e-6);
      EXPECT_LT(test::relative_error(got.d_qkv, narrowed(want.d_qkv)), 2e-6);
    }
}

TEST(Attention, Bf16RoundsOnceAtTheEnd) {
  for (const Sizes& z : kShapes) {
    SCOPED_TRACE(fmt::format("S {} A {}", z.S, z.A));
    const auto qkv = rounded(test::randn(z.inputs(), 3)), d_o = rounded(test::randn(z.outputs(), 4));
    const Result got = run_ops(z, qkv, d_o, {}, DType::bf16);
    const Reference want = reference(z, {qkv.begin(), qkv.end()}, d_o, {});
    EXPECT_LT(test::relative_error(got.o, rounded(narrowed(want.o))), 2e-4);
    EXPECT_LT(test::relative_error(got.lse, narrowed(want.lse)), 1e-6);
    EXPECT_LT(test::relative_error(got.d_qkv, narrowed(want.d_qkv)), 3e-3);
  }
}

TEST(Attention, BackwardMatchesFiniteDifferences) {
  const Sizes z{1, 37, 2, 1, 4};
  const auto qkv = test::randn(z.inputs(), 5), d_o = test::randn(z.outputs(), 6);
  const auto starts = documents(z, true);
  std::vector<double> x(qkv.begin(), qkv.end());
  const auto loss = [&] {
    const Reference at = reference(z, x, d_o, starts);
    double sum = 0;
    for (size_t i = 0; i < at.o.size(); ++i) sum += d_o[i] * at.o[i];
    return sum;
  };
  std::vector<float> want;
  for (double& value : x) {
    const double h = 1e-5, before = value;
    value = before + h;
    const double up = loss();
    value = before - h;
    want.push_back(static_cast<float>((up - loss()) / (2 * h)));
    value = before;
  }
  EXPECT_LT(test::relative_error(run_ops(z, qkv, d_o, starts).d_qkv, want), 2e-6);
}

TEST(Attention, LargeScoresNeitherOverflowNorVanish) {
  const Sizes z{1, 65, 1, 1, 16};
  const auto qkv = test::randn(z.inputs(), 8, 12), d_o = test::randn(z.outputs(), 9);
  const Result got = run_ops(z, qkv, d_o, {});
  const Reference want = reference(z, {qkv.begin(), qkv.end()}, d_o, {});
  EXPECT_LT(test::relative_error(got.o, narrowed(want.o)), 1e-4);
  EXPECT_LT(test::relative_error(got.lse, narrowed(want.lse)), 1e-6);
}

TEST(Attention, ADocumentDoesNotSeeAnother) {
  const Sizes z{1, 100, 4, 2, 16};
  const int64_t second = 37;
  std::vector<int32_t> starts(static_cast<size_t>(z.S), 0);
  for (int64_t i = second; i < z.S; ++i) starts[static_cast<size_t>(i)] = second;
  auto qkv = test::randn(z.inputs(), 10);
  const auto d_o = test::randn(z.outputs(), 11);
  const Result before = run_ops(z, qkv, d_o, starts);
  for (int64_t c = 0; c < second * z.row(); ++c) qkv[static_cast<size_t>(c)] += 3;
  const Result after = run_ops(z, qkv, d_o, starts);
  const auto tail = [](const std::vector<float>& v, int64_t from) {
    return std::vector<float>(v.begin() + from, v.end());
  };
  EXPECT_EQ(tail(before.o, second * z.H * z.A), tail(after.o, second * z.H * z.A));
  EXPECT_EQ(tail(before.d_qkv, second * z.row()), tail(after.d_qkv, second * z.row()));
  for (int64_t h = 0; h < z.H; ++h)
    for (int64_t i = second; i < z.S; ++i)
      EXPECT_EQ(before.lse[static_cast<size_t>(h * z.S + i)], after.lse[static_cast<size_t>(h * z.S + i)]);
  EXPECT_NE(before.o, after.o);
}

TEST(Attention, HasTheSameBitsForAnyNumberOfThreads) {
  for (const Sizes& z : {Sizes{2, 70, 4, 2, 32}, Sizes{1, 70, 2, 1, 32}}) {
    const auto qkv = test::randn(z.inputs(), 12), d_o = test::randn(z.outputs(), 13);
    const Result one = run_ops(z, qkv, d_o, {}, DType::f32, 1), two = run_ops(z, qkv, d_o, {}, DType::f32, 2);
    EXPECT_EQ(one.o, two.o);
    EXPECT_EQ(one.lse, two.lse);
    EXPECT_EQ(one.d_qkv, two.d_qkv);
  }
}

TEST(Attention, NanComesThrough) {
  const Sizes z{1, 40, 1, 1, 8};
  auto qkv = test::randn(z.inputs(), 14);
  qkv[0] = std::numeric_limits<float>::quiet_NaN();  // of the first query, which sees itself alone
  const Result got = run_ops(z, qkv, test::randn(z.outputs(), 15), {});
  EXPECT_TRUE(std::isnan(got.o[0]));
  EXPECT_FALSE(std::isnan(got.o[static_cast<size_t>(z.A)]));
  EXPECT_TRUE(std::isnan(got.d_qkv[static_cast<size_t>(z.A)]));
}

TEST(Attention, CostCountsTheCausalHalf) {
  const Sizes z{3, 20, 4, 2, 8};
  OpRunner r;
  const Handle qkv = r.tensor("qkv", {z.B, z.S, z.row()}), o = r.tensor("o", {z.B, z.S, z.H * z.A});
  const Handle lse = r.tensor("lse", {z.B, z.H, z.S}), starts = r.ints("doc_start", {z.B, z.S});
  const Handle d_o = r.tensor("d_o", {z.B, z.S, z.H * z.A}), d_qkv = r.tensor("d_qkv", {z.B, z.S, z.row()});
  ops::attention_forward(r.program(), Stream::compute,
                         {.qkv = qkv,
                          .doc_start = starts,
                          .o = o,
                          .lse = lse,
                          .num_heads = 4,
                          .num_kv_heads = 2,
                          .head_dim = 8});
  ops::attention_backward(r.program(), Stream::compute,
                          {.d_o = d_o,
                           .qkv = qkv,
                           .o = o,
                           .lse = lse,
                           .d_qkv = d_qkv,
                           .num_heads = 4,
                           .num_kv_heads = 2,
                           .head_dim = 8});
  const double pairs = 3 * 4 * 20.0 * 20 / 2;  // (query, key), the causal half
  const double forward = 2 * 2 * 8 * pairs;    // two products
  const Cost& first = r.program().nodes()[0].cost;
  const Cost& second = r.program().nodes()[1].cost;
  EXPECT_EQ(first.operations, forward);
  EXPECT_EQ(second.operations, forward / 2 * 5);  // five products
  EXPECT_EQ(first.bytes, 4.0 * (3 * 20 * 64 + 3 * 20 * 32 + 3 * 4 * 20 + 3 * 20));
  EXPECT_EQ(second.bytes, 4.0 * (2 * 3 * 20 * 64 + 2 * 3 * 20 * 32 + 3 * 4 * 20));
  EXPECT_EQ(first.work, Work::attention);
}

}  // namespace
}  // namespace moesaic
