#include "ops/swiglu/swiglu_bodies.h"

#include <algorithm>

#include "ops/cpu_op.h"
#include "ops/vector_math.h"

namespace moesaic::ops {
namespace {

// Both directions compute y as ((a sigmoid(a)) b) weight, so that what the backward rebuilds has the forward's bits.

template <class T>
void forward(const OpContext& c, const SwigluForward& args) {
  const int64_t width = c.shape(args.y)[-1];
  const T* h = c.in<T>(args.h);
  T* y = c.out<T>(args.y);
  const float* weights = in_or_null<float>(c, args.weights);
  const int32_t* slots = in_or_null<int32_t>(c, args.slots);
  parallel_for(count_rows(c, args.offsets, c.shape(args.y).rows()), [&](int64_t r) {
    const T *a = h + r * 2 * width, *b = a + width;
    T* y_row = y + r * width;
    const float weight = weights ? weights[slots[r]] : 1;
    for (int64_t i = 0; i < width; ++i)
      y_row[i] = static_cast<T>(fast_silu(static_cast<float>(a[i])) * static_cast<float>(b[i]) * weight);
  });
}

template <class T>
void backward(const OpContext& c, const SwigluBackward& args) {
  const int64_t width = c.shape(args.dy)[-1];
  const T *dy = c.in<T>(args.dy), *h = c.in<T>(args.h);
  T *dh = c.out<T>(args.dh), *y = out_or_null<T>(c, args.y);
  const float* weights = in_or_null<float>(c, args.weights);
  const int32_t* slots = in_or_null<int32_t>(c, args.slots);
  float* d_weights = out_or_null<float>(c, args.d_weights);
  if (d_weights) std::fill_n(d_weights, c.shape(args.d_weights).numel(), 0.0f);
  parallel_for(count_rows(c, args.offsets, c.shape(args.dy).rows()), [&](int64_t r) {
    const T *dy_row = dy + r * width, *a = h + r * 2 * width, *b = a + width;
    T *da = dh + r * 2 * width, *db = da + width;
    const float weight = weights ? weights[slots[r]] : 1;
    float* unweighted = scratch<struct SwigluRow>(width);
#pragma GCC ivdep  // the outputs overlap nothing; five pointers are too many to find that out each time
    for (int64_t i = 0; i < width; ++i) {
      const float d = static_cast<float>(dy_row[i]) * weight, x = static_cast<float>(a[i]);
      const float gate = static_cast<float>(b[i]), sigmoid = fast_sigmoid(x), silu = x * sigmoid;
      unweighted[i] = silu * gate;
      da[i] = static_cast<T>(d * gate * (sigmoid + silu * (1 - sigmoid)));
      db[i] = static_cast<T>(d * silu);
    }
    if (d_weights)
      d_weights[slots[r]] =
          lane_sum(width, [&](int64_t i) { return static_cast<float>(dy_row[i]) * unweighted[i]; });
    if (y) {
      T* y_row = y + r * width;
      for (int64_t i = 0; i < width; ++i) y_row[i] = static_cast<T>(unweighted[i] * weight);
    }
  });
}

}  // namespace

void swiglu_forward_cpu(const OpContext& c, const SwigluForward& args) {
  with_float(c.dtype(args.h), [&](auto zero) { forward<decltype(zero)>(c, args); });
}

void swiglu_backward_cpu(const OpContext& c, const SwigluBackward& args) {
  with_float(c.dtype(args.h), [&](auto zero) { backward<decltype(zero)>(c, args); });
}

}  // namespace moesaic::ops
