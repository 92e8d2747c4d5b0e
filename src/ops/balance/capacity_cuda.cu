// Three kernels, as in dispatch_plan: a warp counts its chunk's rows per (scope, group of experts), a block per counter turns
// the counts of the chunks into prefix sums, and a warp gives its chunk's rows their places, which say who is kept.
#include <climits>

#include "ops/balance/balance_bodies.h"
#include "ops/prefix.cuh"

namespace moesaic::ops {
namespace {

constexpr int kThreads = 128;
constexpr int kScanThreads = 256;

struct Rows {
  const int32_t *indices, *scope, *order;  // order: null when absent
  int32_t *kept, *dropped;
  int32_t* counters;  // [num_counters, chunks]
  int64_t num_slots, chunk_slots, num_chunks, first_kept, num_kept;
  int top_k, group_size, num_groups, capacity;
};

/// The (token, k) in place i, and its counter: -1 when it goes nowhere.
struct Row {
  int64_t token = -1;
  int32_t k = 0, expert = -1, counter = -1;
};

__device__ Row row_at(const Rows& a, int64_t i) {
  Row row;
  if (i >= a.num_slots) return row;
  const int64_t place = i / a.top_k;
  row.token = a.order == nullptr ? place : a.order[place];
  row.k = static_cast<int32_t>(i - place * a.top_k);
  row.expert = a.indices[row.token * a.top_k + row.k];
  if (row.expert >= 0) row.counter = a.scope[row.token] * a.num_groups + row.expert / a.group_size;
  return row;
}

__device__ int64_t chunk_of_warp() {
  return static_cast<int64_t>(blockIdx.x) * (kThreads / 32) + threadIdx.x / 32;
}

__global__ void __launch_bounds__(kThreads) count_kernel(const Rows a) {
  const int64_t chunk = chunk_of_warp();
  if (chunk >= a.num_chunks) return;
  for (int64_t i = 0; i < a.chunk_slots; i += 32) {
    const Row row = row_at(a, chunk * a.chunk_slots + i + lane_index());
    const Peers peers = peers_of(row.counter);
    if (row.counter >= 0 && peers.last)
      atomicAdd(a.counters + row.counter * a.num_chunks + chunk, peers.count);
  }
}

__global__ void __launch_bounds__(kScanThreads) scan_kernel(int64_t num_chunks, int32_t* counters) {
  int32_t* of_chunks = counters + blockIdx.x * num_chunks;
  for_prefixes<kScanThreads>(
      num_chunks, [&](int64_t chunk) { return of_chunks[chunk]; },
      [&](int64_t chunk, int32_t, int32_t before) { of_chunks[chunk] = before; });
}

__global__ void __launch_bounds__(kThreads) keep_kernel(const Rows a) {
  const int64_t chunk = chunk_of_warp();
  if (chunk >= a.num_chunks) return;
  int dropped = 0;
  for (int64_t i = 0; i < a.chunk_slots; i += 32) {
    const Row row = row_at(a, chunk * a.chunk_slots + i + lane_index());
    const bool keep = take_place(a.counters + chunk, a.num_chunks, row.counter) < a.capacity;
    const int64_t at = row.token - a.first_kept;
    const bool mine = row.token >= 0 && at >= 0 && at < a.num_kept;
    if (mine) a.kept[at * a.top_k + row.k] = keep ? row.expert : -1;
    dropped += __popc(__ballot_sync(0xffffffffu, mine && row.expert >= 0 && !keep));
  }
  if (lane_index() == 0 && dropped > 0) atomicAdd(a.dropped, dropped);
}

}  // namespace

void capacity_cuda(const OpContext& c, const Capacity& args) {
  const int64_t num_kept = c.shape(args.kept).rows(), num_tokens = c.shape(args.all_indices).rows();
  const int64_t K = c.shape(args.all_indices)[-1];
  const int64_t groups = args.expert_groups == 0 ? args.num_experts : args.expert_groups;
  const CapacityChunks chunks = capacity_chunks(args, num_tokens, num_kept, K);
  const Rows a{.indices = c.in<int32_t>(args.all_indices),
               .scope = c.in<int32_t>(args.all_scope),
               .order = in_or_null<int32_t>(c, args.order),
               .kept = c.out<int32_t>(args.kept),
               .dropped = c.inout<int32_t>(args.dropped),
               .counters = reinterpret_cast<int32_t*>(c.out_bytes(args.scratch)),
               .num_slots = (args.order ? num_tokens : args.first + num_kept) * K,
               .chunk_slots = chunks.slots,
               .num_chunks = chunks.count,
               .first_kept = args.first,
               .num_kept = num_kept,
               .top_k = static_cast<int>(K),
               .group_size = static_cast<int>(args.num_experts / groups),
               .num_groups = static_cast<int>(groups),
               .capacity = static_cast<int>(std::min<int64_t>(args.capacity, INT_MAX))};
  const auto blocks = static_cast<unsigned>(ceil_div(chunks.count, kThreads / 32));
  cudaMemsetAsync(a.counters, 0, static_cast<size_t>(chunks.count * chunks.num_counters) * 4, cuda_stream(c));
  count_kernel<<<blocks, kThreads, 0, cuda_stream(c)>>>(a);
  scan_kernel<<<static_cast<unsigned>(chunks.num_counters), kScanThreads, 0, cuda_stream(c)>>>(chunks.count,
                                                                                               a.counters);
  keep_kernel<<<blocks, kThreads, 0, cuda_stream(c)>>>(a);
}

}  // namespace moesaic::ops
