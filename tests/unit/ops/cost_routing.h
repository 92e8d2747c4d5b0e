#pragma once
// The formulas of router.h for one token, over Counted, and the settings that they are counted for.
#include <algorithm>

#include "config/config.h"
#include "support/cost_check.h"

namespace moesaic::test {

inline constexpr double kLowest = -INFINITY;
inline Counted sum(const Numbers& list) {
  Counted s;
  for (const Counted x : list) s += x;
  return s;
}

using Choice = std::vector<size_t>;

inline Numbers softmax(Numbers x, Counted* lse = nullptr) {
  Counted largest = kLowest, total;
  for (const Counted value : x) largest = max(largest, value);
  for (Counted& value : x) total += value = exp(value - largest);
  for (Counted& value : x) value /= total;
  if (lse) *lse = largest + log(total);
  return x;
}

/// The log-sum-exp alone.
inline Counted log_sum_exp(const Numbers& x) {
  Counted largest = kLowest, total;
  for (const Counted value : x) largest = max(largest, value);
  for (const Counted value : x) total += exp(value - largest);
  return largest + log(total);
}

inline Numbers sigmoid(Numbers x) {
  for (Counted& value : x) value = 1 / (1 + exp(-value));
  return x;
}

/// Each divided by their sum.
inline Numbers normalized(Numbers x) {
  const Counted total = sum(x);
  for (Counted& value : x) value /= total;
  return x;
}

/// The `count` largest of those at `among`.
inline Choice largest_of(Numbers keys, const Choice& among, int64_t count) {
  Choice chosen;
  for (int64_t k = 0; k < count; ++k) {
    Counted best = kLowest;
    size_t at = 0;
    for (const size_t x : among)
      if (keys[x] > best) best = keys[x], at = x;
    keys[at] = kLowest;
    chosen.push_back(at);
  }
  return chosen;
}

inline Choice everything(size_t count) {
  Choice all;
  for (size_t i = 0; i < count; ++i) all.push_back(i);
  return all;
}

/// The experts of the best groups.
inline Choice allowed(const RouterConfig& config, const Numbers& keys, bool biased) {
  const auto groups = static_cast<size_t>(config.num_groups), size = keys.size() / groups;
  if (config.num_groups_kept == config.num_groups) return everything(keys.size());
  Numbers scores;
  for (size_t g = 0; g < groups; ++g) {
    Counted first = kLowest, second = kLowest;
    for (size_t x = g * size; x < (g + 1) * size; ++x) {
      if (biased && size > 1) second = max(second, min(first, keys[x]));
      first = max(first, keys[x]);
    }
    scores.push_back(biased && size > 1 ? first + second : first);
  }
  Choice open;
  for (const size_t g : largest_of(scores, everything(groups), config.num_groups_kept))
    for (size_t x = g * size; x < (g + 1) * size; ++x) open.push_back(x);
  return open;
}

/// Of sparsemixer: exponentials of the logits near the best one, 0 for others, and their sum. A logit of minus infinity is
/// taken. Returns the best one.
inline size_t near(const Numbers& l, double eps, Numbers& exponentials, Counted& total) {
  const size_t best = largest_of(l, everything(l.size()), 1)[0];
  exponentials.clear(), total = 0;
  for (const Counted x : l) {
    const Counted below = x - l[best], e = exp(below);
    exponentials.push_back(below / max(abs(x), l[best]) < -2 * eps ? 0 : e);
    total += exponentials.back();
  }
  return best;
}

/// What the forward pass makes of one token.
struct Routed {
  Choice chosen;
  Numbers weights, probs;
  Counted lse;
};

inline Routed route(const RouterConfig& config, const Numbers& logits, const Numbers& bias, int64_t K,
                    bool with_lse) {
  const bool is_sigmoid = config.score == ScoreFunction::sigmoid;
  Routed r;
  if (is_sigmoid && with_lse) r.lse = log_sum_exp(logits);
  const Numbers s = is_sigmoid ? sigmoid(logits) : softmax(logits, &r.lse);
  r.probs = is_sigmoid ? normalized(s) : s;
  if (config.score == ScoreFunction::sparsemixer) {
    Numbers left = logits, e;
    for (int64_t k = 0; k < K; ++k) {
      Counted total;
      r.chosen.push_back(near(left, config.sparsemixer_eps, e, total));
      r.weights.push_back(e[r.chosen.back()] / total);
      left[r.chosen.back()] = kLowest;
    }
  } else {
    Numbers keys = s;
    for (size_t x = 0; x < bias.size(); ++x) keys[x] += bias[x];
    r.chosen = config.force_balance ? everything(static_cast<size_t>(K))
                                    : largest_of(keys, allowed(config, keys, !bias.empty()), K);
    for (const size_t x : r.chosen) r.weights.push_back(config.softmax_after_topk ? logits[x] : s[x]);
    if (config.softmax_after_topk)
      r.weights = softmax(r.weights);
    else if (config.renormalize)
      r.weights = normalized(r.weights);
  }
  for (Counted& w : r.weights) w *= config.weight_scale;
  return r;
}

inline RouterConfig scored(ScoreFunction score, bool renormalize, bool after_topk = false) {
  RouterConfig config;
  config.score = score, config.renormalize = renormalize, config.softmax_after_topk = after_topk;
  config.weight_scale = 1.5, config.sparsemixer_eps = 0.3;
  return config;
}

inline std::vector<RouterConfig> configs() {
  std::vector<RouterConfig> list{
      scored(ScoreFunction::softmax, true),        scored(ScoreFunction::softmax, false),
      scored(ScoreFunction::softmax, false, true), scored(ScoreFunction::sigmoid, true),
      scored(ScoreFunction::sigmoid, false),       scored(ScoreFunction::sparsemixer, false)};
  for (const int64_t kept : {2, 3}) {  // of groups
    list.push_back(scored(ScoreFunction::sigmoid, true));
    list.back().num_groups = 4, list.back().num_groups_kept = kept;
  }
  list.push_back(scored(ScoreFunction::softmax, true));
  list.back().force_balance = true;
  return list;
}

/// Runs f(config, K, E) at sizes that differ in both, and in the number of groups where there are any.
template <class F>
void each_case(const F& f) {
  for (const RouterConfig& given : configs())
    expect_cost({16, 24, 40}, [&](int64_t E) {
      RouterConfig config = given;
      if (config.num_groups > 1) config.num_groups = E / 4;
      return f(config, E == 24 && config.score != ScoreFunction::sparsemixer ? 3 : 2, E);
    });
}

}  // namespace moesaic::test
