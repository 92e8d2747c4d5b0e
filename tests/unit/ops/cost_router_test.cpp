// Costs of routing, by the formulas of router.h for one token.
#include "ops/router/router.h"
#include "unit/ops/cost_routing.h"

namespace moesaic::test {
namespace {

constexpr Stream kStream = Stream::compute;

TEST(Cost, OfRouting) {
  for (const bool with_bias : {false, true})
    for (const bool with_lse : {false, true})
      each_case([&](const RouterConfig& config, int64_t K, int64_t E) {
        CostCheck c;
        ops::RouterForward args{.logits = c.random({1, E}), .config = config};
        if (with_bias && config.score != ScoreFunction::sparsemixer) args.bias = c.random({E});
        args.indices = c.ints("indices", {1, K}), args.weights = c.blank({1, K});
        args.probs = c.blank({1, E});
        if (with_lse) args.lse = c.blank({1});
        ops::router_forward(c.program(), kStream, args);
        return c.left_out([&] {
          const Routed r = route(config, c.numbers(args.logits), c.numbers(args.bias), K, with_lse);
          Outputs outputs{{args.indices, {r.chosen.begin(), r.chosen.end()}},
                          {args.weights, r.weights},
                          {args.probs, r.probs}};
          if (with_lse) outputs.push_back({args.lse, {r.lse}});
          return outputs;
        });
      });
}

TEST(Cost, OfTheRouterBias) {
  expect_cost({8, 24}, [](int64_t E) {
    CostCheck c;
    ops::RouterBiasUpdate args{.counts = c.count_up({E}, 7, 3), .bias = c.random({E}), .rate = 0.5f};
    args.ok = c.ints("ok", {1}, {1});
    ops::router_bias_update(c.program(), kStream, args);
    return c.left_out([&] {
      const Numbers counts = c.numbers(args.counts);
      Numbers bias = c.numbers(args.bias);
      const Counted total = sum(counts);
      for (size_t x = 0; x < bias.size(); ++x)
        bias[x] += args.rate * sign(total - counts[x] * static_cast<double>(E));
      return Outputs{{args.bias, bias}};
    });
  });
}

}  // namespace
}  // namespace moesaic::test
