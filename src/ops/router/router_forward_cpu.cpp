#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "device/cpu/threads.h"
#include "ops/router/router_bodies.h"
#include "ops/vector_math.h"

namespace moesaic::ops {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

/// The largest of keys[0 .. count) among the open ones, the first of equals; open is taken from it.
int64_t take_largest(const float* keys, uint8_t* open, int64_t count) {
  int64_t best = -1;
  for (int64_t i = 0; i < count; ++i)
    if (open[i] && (best < 0 || keys[i] > keys[best])) best = i;
  open[best] = 0;
  return best;
}

struct Scratch {
  std::vector<float> keys, group_keys;
  std::vector<uint8_t> open, group_open;
};

/// Opens the experts of the best groups.
void open_groups(const RouterConfig& config, int64_t E, bool biased, Scratch& s) {
  const int64_t groups = config.num_groups, size = E / groups;
  s.open.assign(static_cast<size_t>(E), groups == config.num_groups_kept);
  if (groups == config.num_groups_kept) return;
  s.group_keys.resize(static_cast<size_t>(groups));
  s.group_open.assign(static_cast<size_t>(groups), 1);
  for (int64_t i = 0; i < groups; ++i) {
    float first = kLowest, second = kLowest;
    for (int64_t x = i * size; x < (i + 1) * size; ++x) {
      const float key = s.keys[static_cast<size_t>(x)];
      second = std::max(second, std::min(first, key));
      first = std::max(first, key);
    }
    s.group_keys[static_cast<size_t>(i)] = biased && size > 1 ? first + second : first;
  }
  for (int64_t kept = 0; kept < config.num_groups_kept; ++kept) {
    const int64_t group = take_largest(s.group_keys.data(), s.group_open.data(), groups);
    std::fill_n(s.open.begin() + group * size, size, uint8_t{1});
  }
}

/// row [E] = softmax of logits (in place or not); returns the log-sum-exp.
float softmax(const float* logits, float* row, int64_t E) {
  const float largest = *std::max_element(logits, logits + E);
  for (int64_t x = 0; x < E; ++x) row[x] = fast_exp(logits[x] - largest);
  float sum = 0;
  for (int64_t x = 0; x < E; ++x) sum += row[x];
  for (int64_t x = 0; x < E; ++x) row[x] /= sum;
  return largest + std::log(sum);
}

}  // namespace

void router_forward_cpu(const OpContext& c, const RouterForward& args) {
  const RouterConfig& config = args.config;
  const int64_t T = c.shape(args.logits).rows(), E = c.shape(args.logits)[-1], K = c.shape(args.indices)[-1];
  const auto scale = static_cast<float>(config.weight_scale);
  const bool sigmoid = config.score == ScoreFunction::sigmoid;
  const float* all_logits = c.in<float>(args.logits);
  const float* bias = args.bias ? c.in<float>(args.bias) : nullptr;
  int32_t* indices = c.out<int32_t>(args.indices);
  float *weights = c.out<float>(args.weights), *probs = c.out<float>(args.probs);
  float* lse = args.lse ? c.out<float>(args.lse) : nullptr;

  parallel_for(T, [&](int64_t t) {
    static thread_local Scratch s;
    const float* logits = all_logits + t * E;
    float* row = probs + t * E;  // s, until the end
    int32_t* chosen = indices + t * K;
    float* weight = weights + t * K;
    if (lse || !sigmoid) {
      const float row_lse = softmax(logits, row, E);
      if (lse) lse[t] = row_lse;
    }
    if (sigmoid)
      for (int64_t x = 0; x < E; ++x) row[x] = fast_sigmoid(logits[x]);

    s.keys.resize(static_cast<size_t>(E));
    if (config.score == ScoreFunction::sparsemixer) {
      sparsemixer_forward(logits, E, static_cast<float>(config.sparsemixer_eps), s.keys.data(), chosen,
                          weight);
      for (int64_t k = 0; k < K; ++k) weight[k] *= scale;
      return;
    }
    for (int64_t x = 0; x < E; ++x) {
      const float key = row[x] + (bias ? bias[x] : 0);
      s.keys[static_cast<size_t>(x)] = std::isnan(key) ? kLowest : key;
    }
    open_groups(config, E, bias != nullptr, s);
    for (int64_t k = 0; k < K; ++k) {
      chosen[k] = static_cast<int32_t>(config.force_balance ? (t * K + k) % E
                                                            : take_largest(s.keys.data(), s.open.data(), E));
      weight[k] = config.softmax_after_topk ? logits[chosen[k]] : row[chosen[k]];
    }

    float sum = 0;
    if (config.softmax_after_topk) {
      softmax(weight, weight, K);
    } else if (config.renormalize) {
      for (int64_t k = 0; k < K; ++k) sum += weight[k];
      if (sigmoid) sum += kSigmoidSumFloor;
      for (int64_t k = 0; k < K; ++k) weight[k] /= sum;
    }
    for (int64_t k = 0; k < K; ++k) weight[k] *= scale;
    if (sigmoid) {
      sum = kSigmoidSumFloor;
      for (int64_t x = 0; x < E; ++x) sum += row[x];
      for (int64_t x = 0; x < E; ++x) row[x] /= sum;
    }
  });
}

}  // namespace moesaic::ops
