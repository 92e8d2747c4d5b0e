// Costs of routing's backward pass, by the formulas of router.h for one token.
#include "ops/router/router.h"
#include "unit/ops/cost_routing.h"

namespace moesaic::test {
namespace {

constexpr Stream kStream = Stream::compute;

TEST(Cost, OfRoutingBackward) {
  for (const bool balance : {false, true})
    for (const float z : {0.0f, 0.3f})
      each_case([&](const RouterConfig& config, int64_t K, int64_t E) {
        const bool is_sigmoid = config.score == ScoreFunction::sigmoid,
                   mixes = config.score == ScoreFunction::sparsemixer;
        CostCheck c;
        ops::RouterBackward args{.logits = c.random({1, E}), .config = config, .z_grad = z};
        const Numbers l = c.numbers(args.logits);
        const Routed forward = route(config, l, {}, K, true);
        const Numbers &weights = forward.weights, &probs = forward.probs;
        const Choice& chosen = forward.chosen;
        const auto given = [&](const Numbers& list) {
          std::vector<float> values;
          for (const Counted x : list) values.push_back(static_cast<float>(x.value()));
          return c.tensor("given", {1, static_cast<int64_t>(values.size())}, values);
        };
        args.indices = c.ints("indices", {1, K}, {chosen.begin(), chosen.end()}),
        args.weights = given(weights), args.probs = given(probs);
        args.lse = given({forward.lse}), args.d_weights = c.random({1, K});
        if (balance) args.balance_grad = c.random({1, E}), args.scope = c.ints("scope", {1}, {0});
        args.d_logits = c.blank({1, E});
        ops::router_backward(c.program(), kStream, args);
        return c.left_out([&] {
          const Numbers d_w = c.numbers(args.d_weights), d_probs = c.numbers(args.balance_grad);
          const double scale = config.weight_scale;
          const Numbers s = is_sigmoid ? sigmoid(l) : probs;
          const auto n = static_cast<size_t>(E);
          Numbers d_s(n), d(n);
          // Through the balance loss, to s.
          if (balance) d_s = d_probs;
          if (balance && is_sigmoid) {
            const Counted total = sum(s);
            Counted dot;
            for (size_t x = 0; x < n; ++x) dot += probs[x] * d_probs[x];
            for (size_t x = 0; x < n; ++x) d_s[x] = (d_probs[x] - dot) / total;
          }
          // Through the weights, to s.
          if (!mixes && !config.softmax_after_topk) {
            Counted total, dot;
            for (size_t k = 0; config.renormalize && k < weights.size(); ++k)
              total += s[chosen[k]], dot += weights[k] * d_w[k];
            for (size_t k = 0; k < weights.size(); ++k)
              d_s[chosen[k]] += config.renormalize ? (scale * d_w[k] - dot) / total : scale * d_w[k];
          }
          // From s to the logits.
          if (is_sigmoid)
            for (size_t x = 0; x < n; ++x) d[x] = d_s[x] * s[x] * (1 - s[x]);
          else if (balance || !(mixes || config.softmax_after_topk)) {
            Counted dot;
            for (size_t x = 0; x < n; ++x) dot += probs[x] * d_s[x];
            for (size_t x = 0; x < n; ++x) d[x] = probs[x] * (d_s[x] - dot);
          }
          // Through weights that are not made of s.
          if (config.softmax_after_topk) {
            Counted dot;
            for (size_t k = 0; k < weights.size(); ++k) dot += weights[k] * d_w[k];
            const Counted mean = dot / scale;
            for (size_t k = 0; k < weights.size(); ++k) d[chosen[k]] += weights[k] * (d_w[k] - mean);
          }
          Numbers left = l, p;
          for (int64_t k = 0; mixes && k < K; ++k) {
            Counted total;
            const size_t best = near(left, config.sparsemixer_eps, p, total);
            for (Counted& x : p) x /= total;
            const Counted pull = p[best] * (scale * d_w[size_t(k)]);
            for (size_t x = 0; x < n; ++x) d[x] -= pull * p[x];
            d[best] += pull;
            left[best] = kLowest;
          }
          const Counted lse = forward.lse, factor = z * 2.0 * lse;
          for (size_t x = 0; z != 0 && x < n; ++x) d[x] += factor * exp(l[x] - lse);
          return Outputs{{args.d_logits, d}};
        });
      });
}

}  // namespace
}  // namespace moesaic::test
