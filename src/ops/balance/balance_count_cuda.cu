#include "ops/balance/balance_bodies.h"
#include "ops/cuda_op.cuh"

namespace moesaic::ops {
namespace {

constexpr int kThreads = 256;
constexpr int kDepth = 4;      // tokens that a thread has under way
constexpr int kSumWarps = 16;  // of the second kernel

struct Count {
  const int32_t *indices, *scope;
  const float* probs;
  // Per chunk of tokens [chunks, num_scopes, E]; the results themselves when there is one chunk.
  int32_t* counts;
  float* prob_sums;
  int64_t num_tokens, num_experts, top_k, num_scopes, num_chunks;
};

/// values += the probs of this thread's column over the tokens first, first + step, ... of a scope.
template <int kPack>
__device__ void add_tokens(const Count& a, int64_t scope, int64_t first, int64_t end, int64_t step,
                           const float* column, float (&values)[kPack]) {
  for (int64_t t = first; t < end; t += kDepth * step) {
    bool counts[kDepth];
#pragma unroll
    for (int i = 0; i < kDepth; ++i) counts[i] = t + i * step < end && a.scope[t + i * step] == scope;
    Pack<float, kPack> loaded[kDepth];
#pragma unroll
    for (int i = 0; i < kDepth; ++i)
      if (counts[i]) loaded[i] = load_pack<float, kPack>(column + (t + i * step) * a.num_experts);
#pragma unroll
    for (int i = 0; i < kDepth; ++i)
#pragma unroll
      for (int j = 0; j < kPack; ++j)
        if (counts[i]) values[j] += loaded[i][j];
  }
}

/// A block per scope and chunk of tokens: threads side by side take columns, the rest of the block every so many tokens.
template <int kPack>
__global__ void __launch_bounds__(kThreads) count_kernel(const Count a) {
  extern __shared__ int32_t counts[];  // [E]
  __shared__ float sums[kPack][kThreads];
  const int64_t scope = blockIdx.x / a.num_chunks, chunk = blockIdx.x % a.num_chunks, E = a.num_experts;
  const int64_t first = a.num_tokens * chunk / a.num_chunks, end = a.num_tokens * (chunk + 1) / a.num_chunks;
  const int64_t row = (chunk * a.num_scopes + scope) * E;  // of the results
  const int thread = static_cast<int>(threadIdx.x);

  for (int64_t x = thread; x < E; x += kThreads) counts[x] = 0;
  __syncthreads();
  for (int64_t i = first * a.top_k + thread; i < end * a.top_k; i += kThreads) {
    const int32_t x = a.indices[i];
    if (x >= 0 && a.scope[i / a.top_k] == scope) atomicAdd(counts + x, 1);
  }
  __syncthreads();
  for (int64_t x = thread; x < E; x += kThreads) a.counts[row + x] = counts[x];

  const int num_columns = static_cast<int>(E / kPack);
  for (int first_column = 0; first_column < num_columns; first_column += kThreads) {
    const int width = min(num_columns - first_column, kThreads), num_rows = kThreads / width;
    const int column = first_column + thread % width;
    float values[kPack] = {};
    if (thread / width < num_rows)
      add_tokens<kPack>(a, scope, first + thread / width, end, num_rows, a.probs + column * kPack, values);
#pragma unroll
    for (int j = 0; j < kPack; ++j) sums[j][thread] = values[j];
    __syncthreads();
    if (thread < width) {
      for (int r = 1; r < num_rows; ++r)
#pragma unroll
        for (int j = 0; j < kPack; ++j) values[j] += sums[j][r * width + thread];
      store_pack(a.prob_sums + row + column * kPack, values);
    }
    __syncthreads();
  }
}

/// counts, prob_sums [elements] = the sums over chunks. A warp has 32 neighbours of every kSumWarps-th chunk.
__global__ void __launch_bounds__(32 * kSumWarps)
    sum_chunks_kernel(const Count a, int64_t num_elements, int32_t* counts, float* prob_sums) {
  __shared__ int32_t part_counts[kSumWarps][32];
  __shared__ float part_sums[kSumWarps][32];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t element = static_cast<int64_t>(blockIdx.x) * 32 + lane;
  int32_t count = 0;
  float sum = 0;
  if (element < num_elements) {
#pragma unroll 4
    for (int64_t chunk = warp; chunk < a.num_chunks; chunk += kSumWarps) {
      count += a.counts[chunk * num_elements + element];
      sum += a.prob_sums[chunk * num_elements + element];
    }
  }
  part_counts[warp][lane] = count;
  part_sums[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || element >= num_elements) return;
  for (int w = 1; w < kSumWarps; ++w) {
    count += part_counts[w][lane];
    sum += part_sums[w][lane];
  }
  counts[element] = count;
  prob_sums[element] = sum;
}

__global__ void __launch_bounds__(kThreads)
    add_counts_kernel(int64_t num_rows, int64_t num_experts, const int32_t* counts, int32_t* totals) {
  const int64_t x = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (x >= num_experts) return;
  int32_t sum = totals[x];
#pragma unroll 8
  for (int64_t row = 0; row < num_rows; ++row) sum += counts[row * num_experts + x];
  totals[x] = sum;
}

}  // namespace

void balance_count_cuda(const OpContext& c, const BalanceCount& args) {
  const int64_t T = c.shape(args.indices).rows(), E = c.shape(args.probs)[-1];
  const int64_t num_scopes = c.shape(args.counts).rows(), num_elements = c.shape(args.counts).numel();
  int32_t* counts = c.out<int32_t>(args.counts);
  float* prob_sums = c.out<float>(args.prob_sums);
  Count a{.indices = c.in<int32_t>(args.indices),
          .scope = c.in<int32_t>(args.scope),
          .probs = c.in<float>(args.probs),
          .counts = counts,
          .prob_sums = prob_sums,
          .num_tokens = T,
          .num_experts = E,
          .top_k = c.shape(args.indices)[-1],
          .num_scopes = num_scopes,
          .num_chunks = balance_count_chunks(T, num_scopes)};
  if (a.num_chunks > 1) {
    a.counts = reinterpret_cast<int32_t*>(c.out_bytes(args.scratch));
    a.prob_sums = reinterpret_cast<float*>(a.counts + round_up(a.num_chunks * num_elements, 4));
  }
  const bool packed = packs(a.probs, E, 4, 4) && packs(a.prob_sums, E, 4, 4);
  const auto kernel = packed ? count_kernel<4> : count_kernel<1>;
  const auto num_blocks = static_cast<unsigned>(num_scopes * a.num_chunks);
  kernel<<<num_blocks, kThreads, static_cast<size_t>(E) * 4, cuda_stream(c)>>>(a);
  if (a.num_chunks > 1)
    sum_chunks_kernel<<<static_cast<unsigned>(ceil_div(num_elements, 32)), 32 * kSumWarps, 0,
                        cuda_stream(c)>>>(a, num_elements, counts, prob_sums);
}

void add_counts_cuda(const OpContext& c, const AddCounts& args) {
  const int64_t E = c.shape(args.counts)[-1];
  add_counts_kernel<<<static_cast<unsigned>(ceil_div(E, kThreads)), kThreads, 0, cuda_stream(c)>>>(
      c.shape(args.counts).rows(), E, c.in<int32_t>(args.counts), c.inout<int32_t>(args.totals));
}

}  // namespace moesaic::ops
