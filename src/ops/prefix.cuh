#pragma once
// Prefix sums of integers, and places within a warp: what gives rows their numbers without atomics.
#include "ops/cuda_op.cuh"

namespace moesaic::ops {

__device__ inline int lane_index() {
  return static_cast<int>(threadIdx.x) % 32;
}
/// Bits of the lanes before this one.
__device__ inline unsigned lanes_before() {
  return (1u << lane_index()) - 1;
}

/// The lanes of a warp that hold the same key.
struct Peers {
  int before, count;  // those before this one; all of them
  bool last;          // whether this is the last
};
/// The whole warp calls it.
__device__ inline Peers peers_of(int32_t key) {
  const unsigned same = __match_any_sync(0xffffffffu, key);
  return {__popc(same & lanes_before()), __popc(same), same >> lane_index() == 1};
}

/// Gives each lane of a warp the next number of its key's counter, in order of lanes; keys below 0 get 0. The counter of key
/// 0 is counters[0], that of key 1 counters[stride]. The whole warp calls it, and no other touches these counters.
__device__ inline int32_t take_place(int32_t* counters, int64_t stride, int32_t key) {
  const Peers peers = peers_of(key);
  int32_t* counter = counters + max(key, 0) * stride;
  const int32_t place = key < 0 ? 0 : *counter + peers.before;
  __syncwarp();  // all have read
  if (key >= 0 && peers.last) *counter += peers.count;
  __syncwarp();
  return place;
}

/// Sum of x over the threads before this one, of a block of kThreads; total: over all of them. Every thread calls it.
template <int kThreads>
__device__ int32_t block_prefix(int32_t x, int32_t& total) {
  constexpr int kWarps = kThreads / 32;
  __shared__ int32_t sums[kWarps];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  int32_t sum = x;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int32_t before = __shfl_up_sync(0xffffffffu, sum, step);
    if (lane_index() >= step) sum += before;
  }
  __syncthreads();  // the sums of an earlier call have been read
  if (lane_index() == 31) sums[warp] = sum;
  __syncthreads();
  int32_t before = sum - x;
  total = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    if (w < warp) before += sums[w];
    total += sums[w];
  }
  return before;
}

/// Calls f(i, value(i), sum of value(0) .. value(i - 1)) for i < count, spread over a block of kThreads; returns the sum of
/// all. Every thread calls it.
template <int kThreads, class Value, class F>
__device__ int32_t for_prefixes(int64_t count, const Value& value, const F& f) {
  int32_t done = 0;
  for (int64_t first = 0; first < count; first += kThreads) {
    const int64_t i = first + threadIdx.x;
    const int32_t x = i < count ? value(i) : 0;
    int32_t total = 0;
    const int32_t before = block_prefix<kThreads>(x, total);
    if (i < count) f(i, x, done + before);
    done += total;
  }
  return done;
}

}  // namespace moesaic::ops
