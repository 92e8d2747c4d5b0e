#include "ops/head_loss/head_loss_bodies.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/matmul/product.h"
#include "ops/vector_math.h"

namespace moesaic::ops {
namespace {

float largest(const float* values, int64_t count) {
  constexpr int64_t kLanes = 16;
  float lanes[kLanes];
  std::fill_n(lanes, kLanes, -std::numeric_limits<float>::infinity());
  const int64_t whole = count / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes)
    for (int64_t lane = 0; lane < kLanes; ++lane)
      lanes[lane] = values[i + lane] > lanes[lane] ? values[i + lane] : lanes[lane];
  for (int64_t i = whole; i < count; ++i) lanes[0] = std::max(lanes[0], values[i]);
  return *std::max_element(lanes, lanes + kLanes);
}

/// The loss of one token; its logits become the gradient of scale * loss when there is a scale.
template <class T>
float token_loss(float* logits, int64_t num_logits, int32_t target, const float* scale) {
  const float top = largest(logits, num_logits), target_logit = logits[target];
  if (scale == nullptr) {
    const float sum = lane_sum(num_logits, [&](int64_t v) { return fast_exp(logits[v] - top); });
    return std::log(sum) + top - target_logit;
  }
  for (int64_t v = 0; v < num_logits; ++v) logits[v] = fast_exp(logits[v] - top);
  const float sum = lane_sum(num_logits, [&](int64_t v) { return logits[v]; });
  const float factor = *scale / sum;
  for (int64_t v = 0; v < num_logits; ++v) logits[v] *= factor;
  logits[target] -= *scale;
  for (int64_t v = 0; v < num_logits; ++v) logits[v] = rounded<T>(logits[v]);
  return std::log(sum) + top - target_logit;
}

template <class T>
void run(const OpContext& c, const HeadLoss& args) {
  const int64_t num_tokens = c.shape(args.x).rows(), width = c.shape(args.x)[-1];
  const int64_t num_logits = c.shape(args.w)[0], chunk = c.shape(args.logits)[0];
  const T *x = c.in<T>(args.x), *w = c.in<T>(args.w);
  const int32_t* targets = c.in<int32_t>(args.targets);
  const float* scale = in_or_null<float>(c, args.scale);
  float *logits = c.out<float>(args.logits),
        *dw = args.accumulate ? inout_or_null<float>(c, args.dw) : out_or_null<float>(c, args.dw);
  T* dx = out_or_null<T>(c, args.dx);
  const T* bias = in_or_null<T>(c, args.bias);
  float* d_bias = args.accumulate ? inout_or_null<float>(c, args.d_bias) : out_or_null<float>(c, args.d_bias);
  if (d_bias && !args.accumulate) std::fill_n(d_bias, num_logits, 0.0f);
  float* losses = out_or_null<float>(c, args.token_loss);
  if (losses == nullptr) losses = scratch<struct HeadLosses>(num_tokens);
  for (int64_t first = 0; first < num_tokens; first += chunk) {
    const int64_t rows = std::min(chunk, num_tokens - first);
    product(false, true, rows, num_logits, width, x + first * width, w, false, logits);
    parallel_for(rows, [&](int64_t r) {
      float* row = logits + r * num_logits;
      const int32_t target = targets[first + r];
      if (bias)
        for (int64_t v = 0; v < num_logits; ++v) row[v] += static_cast<float>(bias[v]);
      losses[first + r] = target < 0 ? 0 : token_loss<T>(row, num_logits, target, scale);
      if (target < 0) std::fill_n(row, num_logits, 0.0f);
    });
    if (!dx) continue;
    for (int64_t r = 0; d_bias && r < rows; ++r)
      for (int64_t v = 0; v < num_logits; ++v) d_bias[v] += logits[r * num_logits + v];
    product(false, false, rows, width, num_logits, logits, w, false, dx + first * width);
    product(true, false, num_logits, width, rows, logits, x + first * width, args.accumulate || first > 0,
            dw);
  }
  double sum = 0;
  for (int64_t t = 0; t < num_tokens; ++t) sum += static_cast<double>(losses[t]);
  *c.inout<float>(args.loss) += static_cast<float>(sum);
  *c.inout<int32_t>(args.counted) +=
      static_cast<int32_t>(std::count_if(targets, targets + num_tokens, [](int32_t t) { return t >= 0; }));
}

}  // namespace

void head_loss_cpu(const OpContext& c, const HeadLoss& args) {
  with_float(c.dtype(args.x), [&](auto zero) { run<decltype(zero)>(c, args); });
}

}  // namespace moesaic::ops
