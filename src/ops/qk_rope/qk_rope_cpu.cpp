#include "ops/qk_rope/qk_rope_bodies.h"

#include <algorithm>

#include "ops/cpu_op.h"
#include "ops/norm_rows.h"

namespace moesaic::ops {
namespace {

/// Rows whose share of the gains' gradients is summed apart, whatever the number of threads.
constexpr int64_t kBlockRows = 64;

/// Cosines and sines of one position: [A / 2] each. Kept from call to call, since every layer asks for the same ones.
class RopeTable {
 public:
  /// Makes at(p) valid for the given positions.
  void prepare(const int32_t* positions, int64_t count, int64_t head_dim, float theta,
               const std::vector<double>& factors, double scale) {
    if (head_dim != 2 * half_ || theta != theta_ || factors != factors_ || scale != scale_) {
      values_.clear();
      half_ = head_dim / 2;
      theta_ = theta;
      factors_ = factors;
      scale_ = scale;
    }
    int64_t known = half_ == 0 ? 0 : static_cast<int64_t>(values_.size()) / (2 * half_), needed = 0;
    for (int64_t t = 0; t < count; ++t) {
      MOESAIC_CHECK(positions[t] >= 0, "position {}", positions[t]);
      needed = std::max(needed, int64_t{positions[t]} + 1);
    }
    if (needed > known) values_.resize(static_cast<size_t>(needed * 2 * half_));
    for (; known < needed; ++known)
      for (int64_t i = 0; i < half_; ++i) {
        const double factor = factors_.empty() ? 1 : factors_[static_cast<size_t>(i)];
        const double angle = static_cast<double>(known) *
                             std::pow(theta_, -static_cast<double>(i) / static_cast<double>(half_)) / factor;
        values_[static_cast<size_t>(known * 2 * half_ + i)] = static_cast<float>(scale_ * std::cos(angle));
        values_[static_cast<size_t>(known * 2 * half_ + half_ + i)] =
            static_cast<float>(scale_ * std::sin(angle));
      }
  }
  const float* cosines(int32_t position) const { return values_.data() + position * 2 * half_; }
  const float* sines(int32_t position) const { return cosines(position) + half_; }

 private:
  int64_t half_ = 0;
  double theta_ = 0, scale_ = 1;
  std::vector<double> factors_;
  std::vector<float> values_;  // [positions, 2, A / 2]
};

const RopeTable& rope_table(const int32_t* positions, int64_t count, int64_t head_dim, float theta,
                            const std::vector<double>& factors, double scale) {
  thread_local RopeTable table;
  table.prepare(positions, count, head_dim, theta, factors, scale);
  return table;
}

/// Turns each pair (i, i + half) of a head by its angle; sign -1 turns it back.
void rotate(float* head, const float* cosines, const float* sines, float sign, int64_t half) {
  for (int64_t i = 0; i < half; ++i) {
    const float a = head[i], b = head[half + i], s = sign * sines[i];
    head[i] = a * cosines[i] - b * s;
    head[half + i] = b * cosines[i] + a * s;
  }
}

template <class G>
const float* gain_or_null(const OpContext& c, Handle gain, float* to, int64_t width) {
  if (!gain) return nullptr;
  convert(c.in<G>(gain), to, width);
  return to;
}

template <class T, class G>
void forward(const OpContext& c, const QkRopeForward& args) {
  const int64_t num_rows = c.shape(args.qkv).rows(), width = c.shape(args.qkv)[-1], head_dim = args.head_dim;
  const int64_t num_q = args.num_heads, num_turned = num_q + args.num_kv_heads;
  const T* qkv = c.in<T>(args.qkv);
  T* out = c.out<T>(args.out);
  const int32_t* positions = c.in<int32_t>(args.positions);
  const RopeTable& table = rope_table(positions, num_rows, head_dim, args.theta, args.factors, args.scale);
  float* gains = scratch<struct RopeGains>(2 * head_dim);
  const float* gain_q = gain_or_null<G>(c, args.gain_q, gains, head_dim);
  const float* gain_k = gain_or_null<G>(c, args.gain_k, gains + head_dim, head_dim);
  parallel_for(num_rows, [&](int64_t t) {
    float* head = scratch<struct RopeHead>(head_dim);
    for (int64_t h = 0; h < num_turned; ++h) {
      const int64_t at = t * width + h * head_dim;
      convert(qkv + at, head, head_dim);
      if (const float* gain = h < num_q ? gain_q : gain_k) {
        const float rstd = inverse_rms(head, head_dim, args.eps);
        for (int64_t i = 0; i < head_dim; ++i) head[i] *= rstd * gain[i];
      }
      rotate(head, table.cosines(positions[t]), table.sines(positions[t]), 1, head_dim / 2);
      convert(head, out + at, head_dim);
    }
    const int64_t values = t * width + num_turned * head_dim;
    if (out != qkv) std::copy_n(qkv + values, args.num_kv_heads * head_dim, out + values);
  });
}

template <class T, class G>
void backward(const OpContext& c, const QkRopeBackward& args) {
  const int64_t num_rows = c.shape(args.d_out).rows(), width = c.shape(args.d_out)[-1],
                head_dim = args.head_dim;
  const int64_t num_q = args.num_heads, num_turned = num_q + args.num_kv_heads;
  const T *d_out = c.in<T>(args.d_out), *qkv = in_or_null<T>(c, args.qkv);
  T* d_qkv = c.out<T>(args.d_qkv);
  const int32_t* positions = c.in<int32_t>(args.positions);
  const RopeTable& table = rope_table(positions, num_rows, head_dim, args.theta, args.factors, args.scale);
  float* gains = scratch<struct RopeGains>(2 * head_dim);
  const float* gain_q = gain_or_null<G>(c, args.gain_q, gains, head_dim);
  const float* gain_k = gain_or_null<G>(c, args.gain_k, gains + head_dim, head_dim);
  const int64_t num_blocks = ceil_div(num_rows, kBlockRows);
  float* partials = scratch<struct RopePartials>(num_blocks * 2 * head_dim);
  std::fill_n(partials, num_blocks * 2 * head_dim, 0.0f);
  parallel_for(num_blocks, [&](int64_t block) {
    float* d = scratch<struct RopeGrad>(head_dim);
    float* head = scratch<struct RopeHead>(head_dim);
    for (int64_t t = block * kBlockRows; t < std::min(num_rows, (block + 1) * kBlockRows); ++t) {
      for (int64_t h = 0; h < num_turned; ++h) {
        const int64_t at = t * width + h * head_dim;
        convert(d_out + at, d, head_dim);
        rotate(d, table.cosines(positions[t]), table.sines(positions[t]), -1, head_dim / 2);
        if (const float* gain = h < num_q ? gain_q : gain_k) {
          float* partial = partials + (block * 2 + (h < num_q ? 0 : 1)) * head_dim;
          convert(qkv + at, head, head_dim);
          const float rstd = inverse_rms(head, head_dim, args.eps);
          const float pull = norm_pull(head, d, gain, head_dim, rstd);
          for (int64_t i = 0; i < head_dim; ++i) partial[i] += d[i] * head[i] * rstd;
          for (int64_t i = 0; i < head_dim; ++i) d[i] = rstd * d[i] * gain[i] - head[i] * pull;
        }
        convert(d, d_qkv + at, head_dim);
      }
      const int64_t values = t * width + num_turned * head_dim;
      if (d_qkv != d_out) std::copy_n(d_out + values, args.num_kv_heads * head_dim, d_qkv + values);
    }
  });
  if (!gain_q) return;
  float *d_gain_q = c.inout<float>(args.d_gain_q), *d_gain_k = c.inout<float>(args.d_gain_k);
  for (int64_t block = 0; block < num_blocks; ++block)
    for (int64_t i = 0; i < head_dim; ++i) {
      d_gain_q[i] += partials[block * 2 * head_dim + i];
      d_gain_k[i] += partials[(block * 2 + 1) * head_dim + i];
    }
}

}  // namespace

void qk_rope_forward_cpu(const OpContext& c, const QkRopeForward& args) {
  with_float(c.dtype(args.qkv), [&](auto zero) {
    with_float(args.gain_q ? c.dtype(args.gain_q) : DType::f32,
               [&](auto gain_zero) { forward<decltype(zero), decltype(gain_zero)>(c, args); });
  });
}

void qk_rope_backward_cpu(const OpContext& c, const QkRopeBackward& args) {
  with_float(c.dtype(args.d_out), [&](auto zero) {
    with_float(args.gain_q ? c.dtype(args.gain_q) : DType::f32,
               [&](auto gain_zero) { backward<decltype(zero), decltype(gain_zero)>(c, args); });
  });
}

}  // namespace moesaic::ops
