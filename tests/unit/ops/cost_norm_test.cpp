// Costs of norms and rotary positions.
#include "ops/qk_rope/qk_rope.h"
#include "ops/rmsnorm/rmsnorm.h"
#include "support/cost_check.h"

namespace moesaic::test {
namespace {

constexpr Stream kStream = Stream::compute;
constexpr float kEps = 0.01f;

Counted sum(const Numbers& list) {
  Counted s;
  for (const Counted x : list) s += x;
  return s;
}

void center(Numbers& s) {
  const Counted mean = sum(s) / static_cast<double>(s.size());
  for (Counted& x : s) x -= mean;
}

Counted inverse_rms(const Numbers& s) {
  Counted squares;
  for (const Counted x : s) squares += x * x;
  return 1 / sqrt(squares / static_cast<double>(s.size()) + kEps);
}

/// d_s of s rstd gain, and dgain's part of this row.
Numbers norm_backward(const Numbers& dy, const Numbers& s, const Numbers& gain, Counted rstd,
                      Numbers& dgain) {
  Numbers normed, d;
  Counted dot;
  for (size_t i = 0; i < s.size(); ++i) {
    normed.push_back(s[i] * rstd);
    d.push_back(dy[i] * gain[i]);
    dot += d[i] * normed[i];
    dgain[i] += dy[i] * normed[i];
  }
  const Counted mean = dot / static_cast<double>(s.size());
  for (size_t i = 0; i < s.size(); ++i) d[i] = rstd * (d[i] - normed[i] * mean);
  return d;
}

TEST(Cost, OfNorms) {
  for (const DType type : {DType::f32, DType::bf16})
    for (const bool with_residual : {false, true})
      for (const bool layer_norm : {false, true})
        expect_cost({8, 24}, [&](int64_t width) {
          CostCheck c(type);
          const Shape row{1, width};
          ops::RmsNormForward args{.x = c.random(row), .gain = c.random({width}), .eps = kEps};
          if (with_residual) args.residual = c.random(row), args.sum = c.blank(row);
          if (layer_norm) args.bias = c.random({width});
          args.y = c.blank(row), args.rstd = c.blank_f32({1});
          ops::rmsnorm_forward(c.program(), kStream, args);
          return c.left_out([&] {
            Numbers s = c.numbers(args.x), more = c.numbers(args.residual), y;
            for (size_t i = 0; with_residual && i < s.size(); ++i) s[i] += more[i];
            for (Counted& x : s)  // rstd and y are those of the sum as it is stored
              if (type == DType::bf16) x = static_cast<float>(bf16(static_cast<float>(x.value())));
            if (layer_norm) center(s);
            const Counted rstd = inverse_rms(s);
            const Numbers gain = c.numbers(args.gain), bias = c.numbers(args.bias);
            for (size_t i = 0; i < s.size(); ++i) {
              y.push_back(s[i] * rstd * gain[i]);
              if (layer_norm) y[i] += bias[i];
            }
            return Outputs{{args.y, y}, {args.rstd, {rstd}}};
          });
        });
}

TEST(Cost, OfNormsBackward) {
  for (const bool with_rstd : {false, true})
    for (const bool with_add : {false, true})
      for (const bool layer_norm : {false, true})
        expect_cost({8, 24}, [&](int64_t width) {
          CostCheck c;
          const Shape row{1, width};
          ops::RmsNormBackward args{.dy = c.random(row), .x = c.random(row), .gain = c.random({width})};
          args.eps = kEps;
          if (with_rstd) args.rstd = c.tensor("rstd", {1}, {0.7f});
          if (with_add) args.add = c.random(row);
          args.dx = c.blank(row), args.dgain = c.random({width});
          if (layer_norm) args.d_bias = c.random({width});
          ops::rmsnorm_backward(c.program(), kStream, args);
          return c.left_out([&] {
            Numbers s = c.numbers(args.x), dgain = c.numbers(args.dgain), d_bias = c.numbers(args.d_bias);
            const Numbers dy = c.numbers(args.dy), more = c.numbers(args.add);
            if (layer_norm) center(s);
            const Counted rstd = with_rstd ? c.numbers(args.rstd)[0] : inverse_rms(s);
            Numbers dx = norm_backward(dy, s, c.numbers(args.gain), rstd, dgain);
            if (layer_norm) center(dx);
            for (size_t i = 0; i < dx.size(); ++i) {
              if (layer_norm) d_bias[i] += dy[i];
              if (with_add) dx[i] += more[i];
            }
            Outputs outputs{{args.dx, dx}, {args.dgain, dgain}};
            if (layer_norm) outputs.push_back({args.d_bias, d_bias});
            return outputs;
          });
        });
}

constexpr int64_t kQueries = 2, kKeys = 1;  // heads

/// Turns a head to position 3, or back.
void rotate(Numbers& head, double sign) {
  const size_t half = head.size() / 2;
  for (size_t i = 0; i < half; ++i) {
    const double angle = 3 * std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(half));
    const Counted a = head[i], b = head[half + i], cosine = std::cos(angle), sine = sign * std::sin(angle);
    head[i] = a * cosine - b * sine;
    head[half + i] = b * cosine + a * sine;
  }
}

/// Calls f(head, whether it is a query) for the heads of `x` that are turned, and returns the row of what it makes of them.
template <class F>
Numbers each_head(const Numbers& x, int64_t head_dim, const F& f) {
  Numbers y;
  for (int64_t h = 0; h < kQueries + 2 * kKeys; ++h) {
    Numbers head(x.begin() + h * head_dim, x.begin() + (h + 1) * head_dim);
    if (h < kQueries + kKeys) f(head, h);
    y.insert(y.end(), head.begin(), head.end());
  }
  return y;
}

TEST(Cost, OfRotaryPositions) {
  for (const bool normed : {false, true}) {
    const auto forward = [&](int64_t width) {
      CostCheck c;
      const Shape row{1, (kQueries + 2 * kKeys) * width};
      ops::QkRopeForward args{.qkv = c.random(row), .positions = c.ints("positions", {1}, {3})};
      if (normed) args.gain_q = c.random({width}), args.gain_k = c.random({width});
      args.out = c.blank(row), args.eps = kEps;
      args.num_heads = kQueries, args.num_kv_heads = kKeys, args.head_dim = width;
      ops::qk_rope_forward(c.program(), kStream, args);
      return c.left_out([&] {
        return Outputs{{args.out, each_head(c.numbers(args.qkv), width, [&](Numbers& head, int64_t h) {
                          if (normed) {
                            const Numbers gain = c.numbers(h < kQueries ? args.gain_q : args.gain_k);
                            const Counted rstd = inverse_rms(head);
                            for (size_t i = 0; i < head.size(); ++i) head[i] = head[i] * rstd * gain[i];
                          }
                          rotate(head, 1);
                        })}};
      });
    };
    expect_cost({8, 24}, forward);
    const auto backward = [&](int64_t width) {
      CostCheck c;
      const Shape row{1, (kQueries + 2 * kKeys) * width};
      ops::QkRopeBackward args{.d_out = c.random(row), .positions = c.ints("positions", {1}, {3})};
      if (normed) {
        args.qkv = c.random(row), args.gain_q = c.random({width}), args.gain_k = c.random({width});
        args.d_gain_q = c.random({width}), args.d_gain_k = c.random({width});
      }
      args.d_qkv = c.blank(row), args.eps = kEps;
      args.num_heads = kQueries, args.num_kv_heads = kKeys, args.head_dim = width;
      ops::qk_rope_backward(c.program(), kStream, args);
      return c.left_out([&] {
        Numbers d_gain_q = c.numbers(args.d_gain_q), d_gain_k = c.numbers(args.d_gain_k);
        const Numbers x = c.numbers(args.qkv);
        Outputs outputs{{args.d_qkv, each_head(c.numbers(args.d_out), width, [&](Numbers& head, int64_t h) {
                           rotate(head, -1);
                           if (!normed) return;
                           const Numbers s(x.begin() + h * width, x.begin() + (h + 1) * width);
                           const bool query = h < kQueries;
                           head = norm_backward(head, s, c.numbers(query ? args.gain_q : args.gain_k),
                                                inverse_rms(s), query ? d_gain_q : d_gain_k);
                         })}};
        if (normed)
          outputs.push_back({args.d_gain_q, d_gain_q}), outputs.push_back({args.d_gain_k, d_gain_k});
        return outputs;
      });
    };
    expect_cost({8, 24}, backward);
  }
}

}  // namespace
}  // namespace moesaic::test
