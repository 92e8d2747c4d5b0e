#include "ops/qk_rope/qk_rope.h"

#include <gtest/gtest.h>

#include <numeric>

#include "support/op_runner.h"
#include "support/reference.h"

namespace moesaic::test {
namespace {

constexpr double kEps = 0.01;

struct Case {
  int64_t rows = 5, num_heads = 3, num_kv_heads = 2, head_dim = 6;
  bool gains = false, in_place = false;
  DType type = DType::f32;
  int num_threads = 1;
  float theta = 100;
  int32_t first_position = 0;

  int64_t width() const { return (num_heads + 2 * num_kv_heads) * head_dim; }
  std::vector<int32_t> positions() const {
    std::vector<int32_t> p(static_cast<size_t>(rows));
    for (size_t t = 0; t < p.size(); ++t) p[t] = first_position + static_cast<int32_t>((t * 3) % 7);
    return p;
  }
  std::vector<float> qkv() const { return as_bf16(randn(rows * width(), 1)); }
  std::vector<float> d_out() const { return as_bf16(randn(rows * width(), 2)); }
  std::vector<float> gain_q() const { return as_bf16(randn(head_dim, 3)); }
  std::vector<float> gain_k() const { return as_bf16(randn(head_dim, 4)); }
};

template <class X, class G>
Doubles loop(const Case& c, const X& qkv, const G& gain_q, const G& gain_k) {
  Doubles out(qkv.begin(), qkv.end());
  const int64_t half = c.head_dim / 2;
  for (int64_t t = 0; t < c.rows; ++t)
    for (int64_t h = 0; h < c.num_heads + c.num_kv_heads; ++h) {
      double* head = &out[static_cast<size_t>(t * c.width() + h * c.head_dim)];
      if (c.gains) {
        double squares = 0;
        for (int64_t i = 0; i < c.head_dim; ++i) squares += head[i] * head[i];
        const double rstd = 1 / std::sqrt(squares / static_cast<double>(c.head_dim) + kEps);
        for (int64_t i = 0; i < c.head_dim; ++i)
          head[i] *= rstd * static_cast<double>((h < c.num_heads ? gain_q : gain_k)[static_cast<size_t>(i)]);
      }
      for (int64_t i = 0; i < half; ++i) {
        const double angle = c.positions()[static_cast<size_t>(t)] *
                             std::pow(static_cast<double>(c.theta),
                                      -2.0 * static_cast<double>(i) / static_cast<double>(c.head_dim));
        const double a = head[i], b = head[half + i];
        head[i] = a * std::cos(angle) - b * std::sin(angle);
        head[half + i] = b * std::cos(angle) + a * std::sin(angle);
      }
    }
  return out;
}

std::vector<float> run_forward(const Case& c, const std::vector<float>& values) {
  OpRunner r(c.num_threads);
  const Handle qkv = r.tensor("qkv", {c.rows, c.width()}, values, c.type);
  const Handle out = c.in_place ? qkv : r.tensor("out", {c.rows, c.width()}, {}, c.type);
  ops::QkRopeForward args{.qkv = qkv,
                          .positions = r.ints("positions", {c.rows}, c.positions()),
                          .out = out,
                          .num_heads = c.num_heads,
                          .num_kv_heads = c.num_kv_heads,
                          .head_dim = c.head_dim,
                          .theta = c.theta,
                          .eps = static_cast<float>(kEps)};
  if (c.gains) {
    args.gain_q = r.tensor("gain_q", {c.head_dim}, c.gain_q(), c.type);
    args.gain_k = r.tensor("gain_k", {c.head_dim}, c.gain_k(), c.type);
  }
  ops::qk_rope_forward(r.program(), Stream::compute, args);
  r.run();
  return r.get(out);
}

struct Grads {
  std::vector<float> d_qkv, d_gain_q, d_gain_k;
};

Grads run_backward(const Case& c, const std::vector<float>& d_values) {
  OpRunner r(c.num_threads);
  const Handle d_out = r.tensor("d_out", {c.rows, c.width()}, d_values, c.type);
  const Handle d_qkv = c.in_place ? d_out : r.tensor("d_qkv", {c.rows, c.width()}, {}, c.type);
  ops::QkRopeBackward args{.d_out = d_out,
                           .positions = r.ints("positions", {c.rows}, c.positions()),
                           .d_qkv = d_qkv,
                           .num_heads = c.num_heads,
                           .num_kv_heads = c.num_kv_heads,
                           .head_dim = c.head_dim,
                           .theta = c.theta,
                           .eps = static_cast<float>(kEps)};
  if (c.gains) {
    args.qkv = r.tensor("qkv", {c.rows, c.width()}, c.qkv(), c.type);
    args.gain_q = r.tensor("gain_q", {c.head_dim}, c.gain_q(), c.type);
    args.gain_k = r.tensor("gain_k", {c.head_dim}, c.gain_k(), c.type);
    args.d_gain_q = r.tensor("d_gain_q", {c.head_dim}, randn(c.head_dim, 5));
    args.d_gain_k = r.tensor("d_gain_k", {c.head_dim}, randn(c.head_dim, 6));
  }
  ops::qk_rope_backward(r.program(), Stream::compute, args);
  r.run();
  if (!c.gains) return {r.get(d_qkv), {}, {}};
  return {r.get(d_qkv), r.get(args.d_gain_q), r.get(args.d_gain_k)};
}

TEST(QkRope, ForwardMatchesADoubleLoopAndCopiesValues) {
  for (const bool gains : {false, true})
    for (const int64_t head_dim : {2, 6, 32})
      for (const float theta : {100.0f, 1e6f})
        for (const int32_t first : {0, 50000}) {
          const Case c{.head_dim = head_dim, .gains = gains, .theta = theta, .first_position = first};
          const auto out = run_forward(c, c.qkv());
          EXPECT_LT(relative_error(out, floats(loop(c, c.qkv(), c.gain_q(), c.gain_k()))), 1e-6)
              << gains << " " << head_dim << " " << theta << " " << first;
        }
}

TEST(QkRope, BackwardMatchesFiniteDifferencesAndAccumulatesGains) {
  for (const bool gains : {false, true}) {
    const Case c{.gains = gains};
    const Grads grads = run_backward(c, c.d_out());
    const auto d_qkv = gradient(
        [&](const Doubles& v) { return dot(loop(c, v, c.gain_q(), c.gain_k()), c.d_out()); }, c.qkv());
    EXPECT_LT(relative_error(grads.d_qkv, d_qkv), 2e-6) << gains;
    if (!gains) continue;
    const Doubles q = doubles(c.gain_q()), k = doubles(c.gain_k());
    auto d_q = gradient([&](const Doubles& v) { return dot(loop(c, c.qkv(), v, k), c.d_out()); }, c.gain_q());
    auto d_k = gradient([&](const Doubles& v) { return dot(loop(c, c.qkv(), q, v), c.d_out()); }, c.gain_k());
    for (size_t i = 0; i < d_q.size(); ++i) {
      d_q[i] += randn(c.head_dim, 5)[i];
      d_k[i] += randn(c.head_dim, 6)[i];
    }
    EXPECT_LT(relative_error(grads.d_gain_q, d_q), 2e-6);
    EXPECT_LT(relative_error(grads.d_gain_k, d_k), 2e-6);
  }
}

TEST(QkRope, BackwardWithoutGainsTurnsBack) {
  const Case c{.rows = 9, .head_dim = 32};
  EXPECT_LT(relative_error(run_backward(c, run_forward(c, c.qkv())).d_qkv, c.qkv()), 1e-6);
}

TEST(QkRope, InPlaceAndThreadsGiveTheSameBits) {
  for (const bool gains : {false, true}) {
    const Case c{.rows = 150, .gains = gains};
    Case other = c;
    other.in_place = true;
    other.num_threads = 2;
    EXPECT_EQ(run_forward(other, c.qkv()), run_forward(c, c.qkv()));
    const Grads a = run_backward(c, c.d_out()), b = run_backward(other, c.d_out());
    EXPECT_EQ(a.d_qkv, b.d_qkv);
    EXPECT_EQ(a.d_gain_q, b.d_gain_q);
    EXPECT_EQ(a.d_gain_k, b.d_gain_k);
  }
}

TEST(QkRope, Bf16RoundsOnceFromTheFp32Result) {
  for (const bool gains : {false, true}) {
    const Case c{.rows = 70, .gains = gains};
    Case half = c;
    half.type = DType::bf16;
    EXPECT_EQ(run_forward(half, c.qkv()), as_bf16(run_forward(c, c.qkv())));
    EXPECT_EQ(run_backward(half, c.d_out()).d_qkv, as_bf16(run_backward(c, c.d_out()).d_qkv));
    EXPECT_EQ(run_backward(half, c.d_out()).d_gain_q, run_backward(c, c.d_out()).d_gain_q);
  }
}

TEST(QkRope, CostCountsTurnedElementsAndEachTensorOnce) {
  OpRunner r;
  const Handle qkv = r.tensor("qkv", {5, 42}), out = r.tensor("out", {5, 42}),
               positions = r.ints("positions", {5});
  const Handle gain = r.tensor("gain", {6}), d_gain = r.tensor("d_gain", {6}),
               d_gain_k = r.tensor("d_gain_k", {6});
  const ops::QkRopeForward forward{
      .qkv = qkv, .positions = positions, .out = out, .num_heads = 3, .num_kv_heads = 2, .head_dim = 6};
  ops::qk_rope_forward(r.program(), Stream::compute, forward);
  ops::qk_rope_backward(r.program(), Stream::compute,
                        {.d_out = out,
                         .qkv = qkv,
                         .positions = positions,
                         .gain_q = gain,
                         .gain_k = gain,
                         .d_qkv = out,
                         .d_gain_q = d_gain,
                         .d_gain_k = d_gain_k,
                         .num_heads = 3,
                         .num_kv_heads = 2,
                         .head_dim = 6});
  const auto& nodes = r.program().nodes();
  EXPECT_EQ(nodes[0].cost.bytes, 4 * (2 * 5 * 42 + 5));
  EXPECT_EQ(nodes[1].cost.bytes, 4 * (3 * 5 * 42 + 5 + 2 * 6 + 2 * 2 * 6));
}

}  // namespace
}  // namespace moesaic::test
