#include "ops/rmsnorm/rmsnorm_bodies.h"

#include <algorithm>

#include "ops/cpu_op.h"
#include "ops/norm_rows.h"

namespace moesaic::ops {
namespace {

/// Rows whose share of dgain is summed apart, whatever the number of threads, so that bits do not depend on it.
constexpr int64_t kBlockRows = 64;

/// s -= its mean.
void center(float* s, int64_t width) {
  const float mean = lane_sum(width, [&](int64_t i) { return s[i]; }) / static_cast<float>(width);
  for (int64_t i = 0; i < width; ++i) s[i] -= mean;
}

template <class T, class G>
void forward(const OpContext& c, const RmsNormForward& args) {
  const int64_t num_rows = c.shape(args.x).rows(), width = c.shape(args.x)[-1];
  const T *x = c.in<T>(args.x), *residual = in_or_null<T>(c, args.residual);
  const float* gain = float_rows<struct NormGain>(c.in<G>(args.gain), width, nullptr, 1, width).data;
  const float* bias =
      args.bias ? float_rows<struct NormBias>(c.in<G>(args.bias), width, nullptr, 1, width).data : nullptr;
  T *y = c.out<T>(args.y), *sum = out_or_null<T>(c, args.sum);
  float* rstd = out_or_null<float>(c, args.rstd);
  parallel_for(num_rows, [&](int64_t t) {
    T* y_row = y + t * width;
    float* s = scratch<struct NormRow>(width);
    convert(x + t * width, s, width);
    if (residual) {
      const T* more = residual + t * width;
      for (int64_t i = 0; i < width; ++i) s[i] = rounded<T>(s[i] + static_cast<float>(more[i]));
    }
    if (sum) convert(s, sum + t * width, width);
    if (bias) center(s, width);
    const float scale = inverse_rms(s, width, args.eps);
    if (bias)
      for (int64_t i = 0; i < width; ++i) y_row[i] = static_cast<T>(s[i] * scale * gain[i] + bias[i]);
    else
      for (int64_t i = 0; i < width; ++i) y_row[i] = static_cast<T>(s[i] * scale * gain[i]);
    if (rstd) rstd[t] = scale;
  });
}

template <class T, class G>
void backward(const OpContext& c, const RmsNormBackward& args) {
  const int64_t num_rows = c.shape(args.x).rows(), width = c.shape(args.x)[-1];
  const T *dy = c.in<T>(args.dy), *x = c.in<T>(args.x), *add = in_or_null<T>(c, args.add);
  const float* gain = float_rows<struct NormGain>(c.in<G>(args.gain), width, nullptr, 1, width).data;
  const float* rstd = in_or_null<float>(c, args.rstd);
  T* dx = c.out<T>(args.dx);
  float *dgain = c.inout<float>(args.dgain), *d_bias = inout_or_null<float>(c, args.d_bias);
  const int64_t num_blocks = ceil_div(num_rows, kBlockRows);
  float* partials = scratch<struct NormPartials>(num_blocks * width);
  float* bias_partials = d_bias ? scratch<struct NormBiasPartials>(num_blocks * width) : nullptr;
  parallel_for(num_blocks, [&](int64_t block) {
    float* partial = partials + block * width;
    std::fill_n(partial, width, 0.0f);
    float* bias_partial = d_bias ? bias_partials + block * width : nullptr;
    if (d_bias) std::fill_n(bias_partial, width, 0.0f);
    float* s = scratch<struct NormRow>(width);
    float* d = scratch<struct NormGrad>(width);
    for (int64_t t = block * kBlockRows; t < std::min(num_rows, (block + 1) * kBlockRows); ++t) {
      convert(x + t * width, s, width);
      convert(dy + t * width, d, width);
      if (d_bias) center(s, width);
      const float scale = rstd ? rstd[t] : inverse_rms(s, width, args.eps);
      const float pull = norm_pull(s, d, gain, width, scale);
      for (int64_t i = 0; i < width; ++i) partial[i] += d[i] * s[i] * scale;
      if (d_bias)
        for (int64_t i = 0; i < width; ++i) bias_partial[i] += d[i];
      for (int64_t i = 0; i < width; ++i) d[i] = scale * d[i] * gain[i] - s[i] * pull;
      if (d_bias) center(d, width);  // s has mean zero, so this takes the mean of scale * dy * gain alone
      if (add) {
        const T* more = add + t * width;
        for (int64_t i = 0; i < width; ++i) d[i] += static_cast<float>(more[i]);
      }
      convert(d, dx + t * width, width);
    }
  });
  for (int64_t block = 0; block < num_blocks; ++block)
    for (int64_t i = 0; i < width; ++i) {
      dgain[i] += partials[block * width + i];
      if (d_bias) d_bias[i] += bias_partials[block * width + i];
    }
}

}  // namespace

void rmsnorm_forward_cpu(const OpContext& c, const RmsNormForward& args) {
  with_float(c.dtype(args.x), [&](auto x_zero) {
    with_float(c.dtype(args.gain),
               [&](auto g_zero) { forward<decltype(x_zero), decltype(g_zero)>(c, args); });
  });
}

void rmsnorm_backward_cpu(const OpContext& c, const RmsNormBackward& args) {
  with_float(c.dtype(args.x), [&](auto x_zero) {
    with_float(c.dtype(args.gain),
               [&](auto g_zero) { backward<decltype(x_zero), decltype(g_zero)>(c, args); });
  });
}

}  // namespace moesaic::ops
