#include "ops/router/router.h"

#include "support/parity.h"

namespace moesaic::test {
namespace {

struct Case {
  int64_t T = 37, E = 8, K = 2;
  RouterConfig config;
  bool biased = false, with_lse = true, balance = false;
  float z = 0, size = 1;
  std::vector<float> logits;  // instead of random ones of this size
};

struct Routed {
  Handle logits, indices, weights, probs, lse;
};

Routed record_forward(OpRunner& r, const Case& c) {
  Routed h{.logits = r.tensor("logits", {c.T, c.E},
                              c.logits.empty() ? fresh_randn(c.T * c.E, 1, c.size) : c.logits),
           .indices = r.ints("indices", {c.T, c.K}),
           .weights = r.tensor("weights", {c.T, c.K}),
           .probs = r.tensor("probs", {c.T, c.E})};
  if (c.with_lse) h.lse = r.tensor("lse", {c.T});
  const Handle bias = c.biased ? r.tensor("bias", {c.E}, fresh_randn(c.E, 2, 0.1f)) : Handle{};
  ops::router_forward(r.program(), Stream::compute,
                      {h.logits, bias, h.indices, h.weights, h.probs, h.lse, c.config});
  return h;
}

/// Indices must be equal; only the logarithm of lse is computed otherwise than on the CPU. (sparsemixer also sums over E in another
/// order.)
void expect_forward(const Case& c) {
  const double bound = c.config.score == ScoreFunction::sparsemixer ? 4e-6 : 1e-6;
  SCOPED_TRACE(
      fmt::format("T {} E {} K {} biased {} groups {}", c.T, c.E, c.K, c.biased, c.config.num_groups));
  expect_parity({.f32 = bound}, [&](OpRunner& r) -> Outputs {
    const Routed h = record_forward(r, c);
    Outputs outputs{h.indices, h.weights, h.probs};
    if (h.lse) outputs.push_back(h.lse);
    return outputs;
  });
}

/// Every valid combination of score, softmax after top-k, renormalizing and scale.
std::vector<RouterConfig> all_settings() {
  std::vector<RouterConfig> list;
  for (bool sigmoid : {false, true})
    for (bool after : {false, true})
      for (bool renormalize : {false, true}) {
        if (sigmoid && after) continue;
        list.push_back({.score = sigmoid ? ScoreFunction::sigmoid : ScoreFunction::softmax,
                        .softmax_after_topk = after,
                        .renormalize = renormalize,
                        .weight_scale = renormalize ? 2.5 : 1.0});
      }
  return list;
}

RouterConfig grouped(RouterConfig config, int64_t groups, int64_t kept) {
  config.num_groups = groups;
  config.num_groups_kept = kept;
  return config;
}

TEST(RouterParity, ForwardInEverySetting) {
  for (const RouterConfig& config : all_settings())
    for (const bool biased : {false, true})
      for (const bool with_lse : {false, true})
        for (const int64_t E : {8, 30, 128})
          expect_forward({.E = E, .K = 3, .config = config, .biased = biased, .with_lse = with_lse});
}

TEST(RouterParity, ForwardAtEveryWidth) {
  for (const auto& [E, K] : std::vector<std::pair<int64_t, int64_t>>{{1, 1},
                                                                     {2, 2},
                                                                     {5, 5},
                                                                     {32, 16},
                                                                     {33, 4},
                                                                     {60, 4},
                                                                     {64, 6},
                                                                     {66, 66},
                                                                     {127, 8},
                                                                     {160, 6},
                                                                     {250, 3},
                                                                     {256, 8},
                                                                     {384, 8},
                                                                     {511, 20},
                                                                     {512, 16},
                                                                     {1023, 17},
                                                                     {1024, 1024}})
    for (const int64_t T : {1, 9, 70}) expect_forward({.T = T, .E = E, .K = K});
}

TEST(RouterParity, ForwardWithGroupsLeftOut) {
  for (const RouterConfig& config : all_settings())
    for (const bool biased : {false, true}) {
      expect_forward({.T = 100, .E = 256, .K = 8, .config = grouped(config, 8, 4), .biased = biased});
      expect_forward({.E = 12, .K = 3, .config = grouped(config, 4, 1), .biased = biased});
      expect_forward({.E = 30, .K = 4, .config = grouped(config, 30, 5), .biased = biased});
      expect_forward({.E = 510, .K = 9, .config = grouped(config, 34, 33), .biased = biased});
    }
}

TEST(RouterParity, ForwardInForcedBalance) {
  for (RouterConfig config : all_settings()) {
    config.force_balance = true;
    expect_forward({.T = 100, .E = 30, .K = 4, .config = config});
  }
}

TEST(RouterParity, ForwardOfManyTokensChoosesTheSameExperts) {
  for (const RouterConfig& config : all_settings())
    for (const int64_t E : {8, 64, 512})
      expect_forward({.T = 5000, .E = E, .K = std::min<int64_t>(E, 16), .config = config});
}

TEST(RouterParity, ForwardWithTies) {
  const int64_t T = 300, E = 64;
  for (const bool sigmoid : {false, true})
    for (const bool biased : {false, true})
      for (const float step : {0.5f, 100.0f}) {  // 100: all logits are 0
        std::vector<float> logits = fresh_randn(T * E, 3);
        for (float& x : logits) x = step * std::round(x / step);
        RouterConfig config;
        config.score = sigmoid ? ScoreFunction::sigmoid : ScoreFunction::softmax;
        expect_forward({.T = T, .E = E, .K = 9, .config = config, .biased = biased, .logits = logits});
        expect_forward(
            {.T = T, .E = E, .K = 9, .config = grouped(config, 16, 4), .biased = biased, .logits = logits});
      }
}

TEST(RouterParity, ForwardWithLogitsFarApart) {
  for (const RouterConfig& config : all_settings())
    for (const float size : {20.0f, 100.0f})
      expect_forward({.T = 400, .E = 30, .K = 8, .config = config, .size = size});
}

TEST(RouterParity, NanAndInfChooseTheSameExperts) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  const int64_t T = 200, E = 40;
  std::vector<float> logits = fresh_randn(T * E, 4);
  for (size_t i = 0; i < logits.size(); ++i) {
    const uint64_t draw = random_below(8, test_seed(), 5, i), row = i / E;
    if (row % 3 == 0 && draw < 3) logits[i] = draw == 0 ? nan : draw == 1 ? inf : -inf;
    if (row % 50 == 1) logits[i] = nan;
    if (row % 50 == 2) logits[i] = -inf;
    if (row % 50 == 4) logits[i] = inf;
  }
  for (const RouterConfig& setting : all_settings())
    for (const int64_t groups : {1, 10})
      for (const bool biased : {false, true}) {
        const RouterConfig config = grouped(setting, groups, groups == 1 ? 1 : 3);
        expect_parity({}, [&](OpRunner& r) -> Outputs {
          return {record_forward(
                      r, {.T = T, .E = E, .K = 5, .config = config, .biased = biased, .logits = logits})
                      .indices};
        });
      }
}

/// Forward and backward. A gradient is a difference of sums over E, in another order than the CPU's.
void expect_backward(const Case& c) {
  SCOPED_TRACE(fmt::format("T {} E {} K {} balance {} z {}", c.T, c.E, c.K, c.balance, c.z));
  expect_parity({.f32 = 4e-6}, [&](OpRunner& r) -> Outputs {
    const int64_t num_scopes = 3;
    const Routed h = record_forward(r, c);
    ops::RouterBackward args{.logits = h.logits,
                             .indices = h.indices,
                             .weights = h.weights,
                             .probs = h.probs,
                             .lse = h.lse,
                             .d_weights = r.tensor("d_weights", {c.T, c.K}, fresh_randn(c.T * c.K, 5)),
                             .d_logits = r.tensor("d_logits", {c.T, c.E}),
                             .config = c.config,
                             .z_grad = c.z};
    if (c.balance) {
      std::vector<int32_t> scope;
      for (int64_t t = 0; t < c.T; ++t)
        scope.push_back(static_cast<int32_t>(
            random_below(static_cast<uint64_t>(num_scopes), test_seed(), 6, static_cast<uint64_t>(t))));
      args.balance_grad = r.tensor("balance_grad", {num_scopes, c.E}, fresh_randn(num_scopes * c.E, 7));
      args.scope = r.ints("scope", {c.T}, scope);
    }
    ops::router_backward(r.program(), Stream::compute, args);
    return {args.d_logits};
  });
}

TEST(RouterParity, BackwardInEverySetting) {
  for (const RouterConfig& config : all_settings())
    for (const bool balance : {false, true})
      for (const float z : {0.0f, 0.3f})
        for (const int64_t E : {8, 30, 128})
          expect_backward({.E = E, .K = 3, .config = config, .with_lse = z != 0, .balance = balance, .z = z});
}

TEST(RouterParity, BackwardAtEveryWidth) {
  for (const auto& [E, K] : std::vector<std::pair<int64_t, int64_t>>{
           {2, 2}, {5, 5}, {32, 16}, {64, 6}, {66, 66}, {127, 8}, {250, 3}, {256, 8}, {512, 16}, {1023, 17}})
    for (const int64_t T : {1, 9, 70}) expect_backward({.T = T, .E = E, .K = K, .balance = true, .z = 0.1f});
}

RouterConfig sparsemixer(double eps, double scale = 1) {
  RouterConfig config;
  config.score = ScoreFunction::sparsemixer;
  config.renormalize = false;
  config.sparsemixer_eps = eps;
  config.weight_scale = scale;
  return config;
}

const std::vector<int64_t> kMixedWidths = {2, 3, 8, 16, 30, 64, 66, 127, 128, 250, 256, 511, 512, 1023, 1024};

TEST(SparseMixerParity, ForwardAtEveryWidth) {
  for (const int64_t E : kMixedWidths)
    for (const int64_t T : {1, 9, 70})
      for (const double eps : {0.0, 0.01, 0.3})
        expect_forward({.T = T, .E = E, .config = sparsemixer(eps, 2.5), .with_lse = T == 9});
}

TEST(SparseMixerParity, ForwardOfManyTokensChoosesTheSameExperts) {
  for (const int64_t E : {8, 16, 200})
    for (const float size : {0.1f, 1.0f, 20.0f})
      expect_forward({.T = 5000, .E = E, .config = sparsemixer(0.1), .size = size});
}

TEST(SparseMixerParity, ForwardWithTies) {
  const int64_t T = 300, E = 16;
  for (const float step : {0.5f, 100.0f}) {  // 100: all logits are 0
    std::vector<float> logits = fresh_randn(T * E, 3);
    for (float& x : logits) x = step * std::round(x / step);
    // With 0.125 and 0.25 many distances lie on the border itself.
    for (const double eps : {0.0, 0.125, 0.25})
      expect_forward({.T = T, .E = E, .config = sparsemixer(eps), .logits = logits});
  }
}

TEST(SparseMixerParity, NanAndInfChooseTheSameExperts) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  const int64_t T = 200, E = 10;
  std::vector<float> logits = fresh_randn(T * E, 4);
  for (size_t i = 0; i < logits.size(); ++i) {
    const uint64_t draw = random_below(8, test_seed(), 5, i), row = i / E;
    if (row % 3 == 0 && draw < 3) logits[i] = draw == 0 ? nan : draw == 1 ? inf : -inf;
    if (row % 50 == 1) logits[i] = nan;
    if (row % 50 == 2) logits[i] = -inf;
    if (row % 50 == 4) logits[i] = inf;
    if (row % 50 == 5 && i % E != 6) logits[i] = nan;
  }
  expect_parity({}, [&](OpRunner& r) -> Outputs {
    return {record_forward(r, {.T = T, .E = E, .config = sparsemixer(0.1), .logits = logits}).indices};
  });
}

TEST(SparseMixerParity, BackwardAtEveryWidth) {
  for (const int64_t E : kMixedWidths)
    for (const double eps : {0.0, 0.01, 0.3})
      for (const bool balance : {false, true})
        for (const float z : {0.0f, 0.3f})
          expect_backward({.T = 70,
                           .E = E,
                           .config = sparsemixer(eps, 2.5),
                           .with_lse = z != 0,
                           .balance = balance,
                           .z = z});
}

TEST(RouterParity, BiasUpdate) {
  for (const int64_t E : {1, 8, 300, 513})
    for (const int32_t ok : {0, 1})
      expect_parity({.f32 = 1e-9}, [&](OpRunner& r) -> Outputs {
        std::vector<int32_t> counts;
        for (int64_t x = 0; x < E; ++x)
          counts.push_back(
              static_cast<int32_t>(1000000000 + random_below(3, test_seed(), 8, static_cast<uint64_t>(x))));
        const Handle bias = r.tensor("bias", {E}, fresh_randn(E, 9));
        ops::router_bias_update(
            r.program(), Stream::compute,
            {.counts = r.ints("counts", {E}, counts), .bias = bias, .ok = r.ints("ok", {1}, {ok})});
        return {bias};
      });
}

}  // namespace
}  // namespace moesaic::test
