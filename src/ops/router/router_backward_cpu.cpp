#include <vector>

#include "device/cpu/threads.h"
#include "ops/router/router_bodies.h"
#include "ops/vector_math.h"

namespace moesaic::ops {
namespace {

/// y[i] = p[i] (d[i] - sum of p d): the gradient of a softmax p.
void softmax_gradient(const float* p, const float* d, float* y, int64_t count) {
  float dot = 0;
  for (int64_t i = 0; i < count; ++i) dot += p[i] * d[i];
  for (int64_t i = 0; i < count; ++i) y[i] = p[i] * (d[i] - dot);
}

/// One token's weights = weight_scale * scores of the chosen, or those divided by their sum: adds the gradient to
/// d_score [E].
void add_weight_gradient(const RouterConfig& config, const int32_t* chosen, const float* score,
                         const float* weight, const float* d_weight, int64_t K, float* d_score) {
  const auto scale = static_cast<float>(config.weight_scale);
  if (!config.renormalize) {
    for (int64_t k = 0; k < K; ++k) d_score[chosen[k]] += scale * d_weight[k];
    return;
  }
  float sum = config.score == ScoreFunction::sigmoid ? kSigmoidSumFloor : 0, dot = 0;
  for (int64_t k = 0; k < K; ++k) {
    sum += score[chosen[k]];
    dot += weight[k] * d_weight[k];
  }
  for (int64_t k = 0; k < K; ++k) d_score[chosen[k]] += (scale * d_weight[k] - dot) / sum;
}

}  // namespace

void router_backward_cpu(const OpContext& c, const RouterBackward& args) {
  const RouterConfig& config = args.config;
  const int64_t T = c.shape(args.logits).rows(), E = c.shape(args.logits)[-1], K = c.shape(args.indices)[-1];
  const bool sigmoid = config.score == ScoreFunction::sigmoid;
  const float *all_logits = c.in<float>(args.logits), *all_probs = c.in<float>(args.probs);
  const int32_t* indices = c.in<int32_t>(args.indices);
  const float *weights = c.in<float>(args.weights), *d_weights = c.in<float>(args.d_weights);
  const float* balance = args.balance_grad ? c.in<float>(args.balance_grad) : nullptr;
  const int32_t* scope = args.scope ? c.in<int32_t>(args.scope) : nullptr;
  const float* lse = args.z_grad != 0 ? c.in<float>(args.lse) : nullptr;
  float* all_d_logits = c.out<float>(args.d_logits);

  parallel_for(T, [&](int64_t t) {
    static thread_local std::vector<float> scratch;
    scratch.resize(static_cast<size_t>(2 * E));
    float *score = scratch.data(), *d_score = score + E;
    const float *logits = all_logits + t * E, *probs = all_probs + t * E;
    const int32_t* chosen = indices + t * K;
    const float *weight = weights + t * K, *d_weight = d_weights + t * K;
    float* d_logits = all_d_logits + t * E;
    const float* d_probs = balance ? balance + scope[t] * E : nullptr;

    if (sigmoid) {  // probs = score / sum of scores
      float sum = kSigmoidSumFloor, dot = 0;
      for (int64_t x = 0; x < E; ++x) score[x] = fast_sigmoid(logits[x]);
      for (int64_t x = 0; x < E; ++x) sum += score[x];
      for (int64_t x = 0; d_probs && x < E; ++x) dot += probs[x] * d_probs[x];
      for (int64_t x = 0; x < E; ++x) d_score[x] = d_probs ? (d_probs[x] - dot) / sum : 0;
      add_weight_gradient(config, chosen, score, weight, d_weight, K, d_score);
      for (int64_t x = 0; x < E; ++x) d_logits[x] = d_score[x] * score[x] * (1 - score[x]);
    } else {
      for (int64_t x = 0; x < E; ++x) d_score[x] = d_probs ? d_probs[x] : 0;
      const bool mixes = config.score == ScoreFunction::sparsemixer;
      if (!config.softmax_after_topk && !mixes)
        add_weight_gradient(config, chosen, probs, weight, d_weight, K, d_score);
      softmax_gradient(probs, d_score, d_logits, E);
      if (mixes) {
        const auto scale = static_cast<float>(config.weight_scale);
        const float scaled[] = {scale * d_weight[0], scale * d_weight[1]};
        sparsemixer_backward(logits, E, static_cast<float>(config.sparsemixer_eps), scaled, score, d_logits);
      }
    }
    if (config.softmax_after_topk) {
      const auto scale = static_cast<float>(config.weight_scale);
      float dot = 0;
      for (int64_t k = 0; k < K; ++k) dot += weight[k] * d_weight[k];
      for (int64_t k = 0; k < K; ++k) d_logits[chosen[k]] += weight[k] * (d_weight[k] - dot / scale);
    }
    if (lse) {
      const float factor = args.z_grad * 2 * lse[t];
      for (int64_t x = 0; x < E; ++x) d_logits[x] += factor * fast_exp(logits[x] - lse[t]);
    }
  });
}

}  // namespace moesaic::ops
