#include "ops/norm/norm_bodies.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <vector>

#include "base/check.h"
#include "device/cpu/threads.h"

namespace moesaic::ops {
namespace {

constexpr int64_t kBlock = 4096;  // elements; fixed, so that sums do not depend on the number of threads
constexpr size_t kLanes = 32;

/// Sum of squares in lanes, then lanes by halves.
float block_sum(const float* x, int64_t count) {
  std::array<float, kLanes> lanes{};
  int64_t i = 0;
  for (; i + static_cast<int64_t>(kLanes) <= count; i += kLanes)
    for (size_t lane = 0; lane < kLanes; ++lane)
      lanes[lane] += x[i + static_cast<int64_t>(lane)] * x[i + static_cast<int64_t>(lane)];
  for (size_t lane = 0; i < count; ++i, ++lane) lanes[lane] += x[i] * x[i];
  for (size_t half = kLanes / 2; half > 0; half /= 2)
    for (size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  return lanes[0];
}

int64_t block_nonfinite(const float* x, int64_t count) {
  constexpr uint32_t kExponent = 0x7f800000u;
  int32_t found = 0;
  for (int64_t i = 0; i < count; ++i) found += (std::bit_cast<uint32_t>(x[i]) & kExponent) == kExponent;
  return found;
}

/// Adds up f(block, its size) over blocks of x, blocks in parallel, their sums in order.
template <class Sum, class F>
Sum sum_blocks(const OpContext& c, Handle handle, const F& f) {
  static thread_local std::vector<Sum> scratch;
  const float* x = c.in<float>(handle);
  const int64_t count = c.shape(handle).numel(), blocks = ceil_div(count, kBlock);
  scratch.resize(static_cast<size_t>(blocks));
  Sum* parts = scratch.data();
  parallel_for(blocks,
               [=](int64_t b) { parts[b] = f(x + b * kBlock, std::min(kBlock, count - b * kBlock)); });
  Sum sum = 0;
  for (int64_t b = 0; b < blocks; ++b) sum += parts[b];
  return sum;
}

}  // namespace

void sum_of_squares_cpu(const OpContext& c, const Reduction& args) {
  *c.out<float>(args.out) = static_cast<float>(sum_blocks<double>(c, args.x, block_sum));
}

void count_nonfinite_cpu(const OpContext& c, const Reduction& args) {
  *c.out<int32_t>(args.out) = static_cast<int32_t>(sum_blocks<int64_t>(c, args.x, block_nonfinite));
}

void verdict_cpu(const OpContext& c, const Verdict& args) {
  const float* parts = c.in<float>(args.parts);
  double sum = 0;
  for (int64_t i = 0; i < c.shape(args.parts).numel(); ++i) sum += parts[i];
  const auto norm = static_cast<float>(std::sqrt(sum));
  *c.out<float>(args.grad_norm) = norm;
  *c.out<float>(args.clip_scale) = args.clip == 0 ? 1.0f : std::min(1.0f, args.clip / norm);

  const int32_t* overflow = c.in<int32_t>(args.overflow);
  const bool fits =
      std::all_of(overflow, overflow + c.shape(args.overflow).numel(), [](int32_t n) { return n == 0; });
  const bool ok = std::isfinite(norm) && *c.in<int32_t>(args.counted) > 0 && (fits || args.drop_overflow);
  *c.out<int32_t>(args.ok) = ok ? 1 : 0;
}

}  // namespace moesaic::ops
