#include <algorithm>

#include "ops/bias/bias_bodies.h"
#include "ops/cpu_op.h"

namespace moesaic::ops {
namespace {

/// Rows that are summed apart, whatever the number of threads, so that bits do not depend on it.
constexpr int64_t kBlockRows = 64;

template <class T, class B>
void add(const OpContext& c, const AddBias& args) {
  const int64_t num_rows = c.shape(args.x).rows(), width = c.shape(args.x)[-1];
  T* x = c.inout<T>(args.x);
  const B* bias = c.in<B>(args.bias);
  parallel_for(num_rows, [&](int64_t t) {
    T* row = x + t * width;
    for (int64_t i = 0; i < width; ++i)
      row[i] = static_cast<T>(static_cast<float>(row[i]) + static_cast<float>(bias[i]));
  });
}

template <class T>
void backward(const OpContext& c, const BiasBackward& args) {
  const int64_t num_rows = c.shape(args.dy).rows(), width = c.shape(args.dy)[-1];
  const T* dy = c.in<T>(args.dy);
  float* d_bias = c.inout<float>(args.d_bias);
  const int64_t num_blocks = ceil_div(num_rows, kBlockRows);
  float* partials = scratch<struct BiasPartials>(num_blocks * width);
  parallel_for(num_blocks, [&](int64_t block) {
    float* partial = partials + block * width;
    std::fill_n(partial, width, 0.0f);
    for (int64_t t = block * kBlockRows; t < std::min(num_rows, (block + 1) * kBlockRows); ++t)
      for (int64_t i = 0; i < width; ++i) partial[i] += static_cast<float>(dy[t * width + i]);
  });
  for (int64_t block = 0; block < num_blocks; ++block)
    for (int64_t i = 0; i < width; ++i) d_bias[i] += partials[block * width + i];
}

}  // namespace

void add_bias_cpu(const OpContext& c, const AddBias& args) {
  with_float(c.dtype(args.x), [&](auto x_zero) {
    with_float(c.dtype(args.bias), [&](auto b_zero) { add<decltype(x_zero), decltype(b_zero)>(c, args); });
  });
}

void bias_backward_cpu(const OpContext& c, const BiasBackward& args) {
  with_float(c.dtype(args.dy), [&](auto zero) { backward<decltype(zero)>(c, args); });
}

}  // namespace moesaic::ops
