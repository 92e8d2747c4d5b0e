// SparseMixer-v2's routing of two experts (Liu et al., arXiv 2409.12136) without its random parts: the best expert, weighted
// by a softmax over the logits near it, then the best of the others in the same way.
#include <cmath>

#include "ops/router/router_bodies.h"

namespace moesaic::ops {
namespace {

/// probs [E] = softmax over the logits that are near the best one of those left, zero elsewhere; returns that best one.
/// `taken`: an expert left out, or -1.
int32_t near_softmax(const float* logits, int64_t E, float eps, int32_t taken, float* probs) {
  int32_t best = -1;
  for (int64_t x = 0; x < E; ++x)
    if (x != taken && (best < 0 || logits[x] > logits[best] || std::isnan(logits[best])))
      best = static_cast<int32_t>(x);
  const float top = logits[best];
  float sum = 0;
  for (int64_t x = 0; x < E; ++x) {
    const bool far = (top - logits[x]) / std::fmax(std::fabs(logits[x]), top) > 2 * eps;
    probs[x] = x == taken || far ? 0 : std::exp(logits[x] - top);
    sum += probs[x];
  }
  for (int64_t x = 0; x < E; ++x) probs[x] /= sum;
  return best;
}

}  // namespace

void sparsemixer_forward(const float* logits, int64_t E, float eps, float* probs, int32_t* chosen,
                         float* weights) {
  int32_t taken = -1;
  for (int k = 0; k < 2; ++k) {
    const int32_t best = near_softmax(logits, E, eps, taken, probs);
    chosen[k] = best;
    weights[k] = probs[best];
    taken = best;
  }
}

void sparsemixer_backward(const float* logits, int64_t E, float eps, const float* d_weights, float* probs,
                          float* d_logits) {
  int32_t taken = -1;
  for (int k = 0; k < 2; ++k) {
    const int32_t best = near_softmax(logits, E, eps, taken, probs);
    const float pull = probs[best] * d_weights[k];
    for (int64_t x = 0; x < E; ++x) d_logits[x] -= pull * probs[x];
    d_logits[best] += pull;
    taken = best;
  }
}

}  // namespace moesaic::ops
