#include "ops/attention/attention_kernels.h"
#include "ops/cuda_op.cuh"

namespace moesaic::ops::attention {
namespace {

// Blocks of kTile x kTile threads, and tiles of kTile rows in FP32: thread (i, j) makes score (i, j) and owns columns j,
// j + kTile, ... of row i.
constexpr int kTile = 16, kThreads = kTile * kTile;

/// tile [kTile, A] (rows A + 1 apart, so that equal columns lie in different banks) = rows first .. of a head; zeros below S.
template <class T>
__device__ void load_tile(float* tile, const T* head, int64_t stride, int first, int S, int A) {
  for (int n = threadIdx.x; n < kTile * A; n += kThreads) {
    const int i = n / A, a = n % A;
    tile[i * (A + 1) + a] = first + i < S ? to_float(head[(first + i) * stride + a]) : 0;
  }
}

__device__ float dot(const float* x, const float* y, int A) {
  float sum = 0;
  for (int a = 0; a < A; ++a) sum = fmaf(x[a], y[a], sum);
  return sum;
}

/// Over the kTile threads of a row.
__device__ float row_sum(float x) {
  for (int lane = kTile / 2; lane > 0; lane /= 2) x += __shfl_xor_sync(0xffffffffu, x, lane);
  return x;
}
__device__ float row_max(float x) {
  for (int lane = kTile / 2; lane > 0; lane /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, lane));
  return x;
}

/// sums (this thread's columns) += weights [kTile] times a tile.
template <int kColumns>
__device__ void add_rows(float (&sums)[kColumns], const float* weights, const float* tile, int A) {
  const int j = threadIdx.x % kTile;
#pragma unroll
  for (int r = 0; r < kColumns; ++r)
    if (j + r * kTile < A)
      for (int n = 0; n < kTile; ++n) sums[r] = fmaf(weights[n], tile[n * (A + 1) + j + r * kTile], sums[r]);
}

template <int kColumns, class T>
__device__ void store_columns(const float (&sums)[kColumns], float factor, T* row, int A) {
  const int j = threadIdx.x % kTile;
#pragma unroll
  for (int r = 0; r < kColumns; ++r)
    if (j + r * kTile < A) row[j + r * kTile] = from_float<T>(sums[r] * factor);
}

/// The first block of keys that any of the queries first .. first + kTile sees. The same on every thread.
__device__ int first_block(const int32_t* doc_start, int first, int S) {
  if (doc_start == nullptr) return 0;
  int least = first;
  for (int r = first; r < min(first + kTile, S); ++r) least = min(least, doc_start[r]);
  return least / kTile;
}

template <class T, int kColumns>
__global__ void __launch_bounds__(kThreads) forward_kernel(Problem p, ForwardTensors<T> t, float scale) {
  extern __shared__ float memory[];
  const int S = p.S, A = p.A, pitch = A + 1, h = blockIdx.y, group = h / (p.H / p.G);
  float *queries = memory, *keys = queries + kTile * pitch, *values = keys + kTile * pitch,
        *probs = values + kTile * pitch;
  const int64_t b = blockIdx.z, row = p.row();
  const int first = blockIdx.x * kTile, i = threadIdx.x / kTile, j = threadIdx.x % kTile, query = first + i;
  const T* sequence = t.qkv + b * S * row;
  const int32_t* doc_start = p.doc_start ? p.doc_start + b * S : nullptr;
  const int first_key = doc_start && query < S ? doc_start[query] : 0;
  load_tile(queries, sequence + int64_t{h} * A, row, first, S, A);
  float largest = -1e30f, sum = 0, out[kColumns];
#pragma unroll
  for (int r = 0; r < kColumns; ++r) out[r] = 0;
  for (int block = first_block(doc_start, first, S); block * kTile <= first; ++block) {
    __syncthreads();  // the tiles of the round before have been read
    load_tile(keys, sequence + int64_t{p.H + group} * A, row, block * kTile, S, A);
    load_tile(values, sequence + int64_t{p.H + p.G + group} * A, row, block * kTile, S, A);
    __syncthreads();
    const int key = block * kTile + j;
    const float score =
        key <= query && key >= first_key ? scale * dot(queries + i * pitch, keys + j * pitch, A) : -INFINITY;
    const float now = fmaxf(largest, row_max(score)), prob = expf(score - now), rescale = expf(largest - now);
    largest = now;
    sum = sum * rescale + row_sum(prob);
    probs[i * (kTile + 1) + j] = prob;
    __syncwarp();  // a row of probs is one warp's
#pragma unroll
    for (int r = 0; r < kColumns; ++r) out[r] *= rescale;
    add_rows<kColumns>(out, probs + i * (kTile + 1), values, A);
  }
  if (query >= S) return;
  T* o = t.o + ((b * S + query) * p.H + h) * A;
  store_columns<kColumns>(out, 1 / sum, o, A);
  if (j == 0) t.lse[(b * p.H + h) * S + query] = largest + logf(sum);
}

/// d_q of kTile queries of one head.
template <class T, int kColumns>
__global__ void __launch_bounds__(kThreads) query_pass(Problem p, BackwardTensors<T> t, float scale) {
  extern __shared__ float memory[];
  const int S = p.S, A = p.A, pitch = A + 1, h = blockIdx.y, group = h / (p.H / p.G);
  float *queries = memory, *d_out = queries + kTile * pitch, *keys = d_out + kTile * pitch,
        *values = keys + kTile * pitch, *d_scores = values + kTile * pitch;
  const int64_t b = blockIdx.z, row = p.row();
  const int first = blockIdx.x * kTile, i = threadIdx.x / kTile, j = threadIdx.x % kTile, query = first + i;
  const T* sequence = t.qkv + b * S * row;
  const int32_t* doc_start = p.doc_start ? p.doc_start + b * S : nullptr;
  const int first_key = doc_start && query < S ? doc_start[query] : 0;
  const float lse = query < S ? t.lse[(b * p.H + h) * S + query] : 0,
              delta = query < S ? t.delta[(b * p.H + h) * S + query] : 0;
  load_tile(queries, sequence + int64_t{h} * A, row, first, S, A);
  load_tile(d_out, t.d_o + (b * S * p.H + h) * A, int64_t{p.H} * A, first, S, A);
  float d_q[kColumns];
#pragma unroll
  for (int r = 0; r < kColumns; ++r) d_q[r] = 0;
  for (int block = first_block(doc_start, first, S); block * kTile <= first; ++block) {
    __syncthreads();
    load_tile(keys, sequence + int64_t{p.H + group} * A, row, block * kTile, S, A);
    load_tile(values, sequence + int64_t{p.H + p.G + group} * A, row, block * kTile, S, A);
    __syncthreads();
    const int key = block * kTile + j;
    float d_score = 0;
    if (key <= query && key >= first_key) {
      const float prob = expf(scale * dot(queries + i * pitch, keys + j * pitch, A) - lse);
      d_score = prob * (dot(d_out + i * pitch, values + j * pitch, A) - delta);
    }
    d_scores[i * (kTile + 1) + j] = d_score;
    __syncwarp();
    add_rows<kColumns>(d_q, d_scores + i * (kTile + 1), keys, A);
  }
  if (query < S) store_columns<kColumns>(d_q, scale, t.d_qkv + (b * S + query) * row + int64_t{h} * A, A);
}

/// d_k and d_v of kTile keys of one key/value head, over its query heads in order.
template <class T, int kColumns>
__global__ void __launch_bounds__(kThreads) key_pass(Problem p, BackwardTensors<T> t, float scale) {
  extern __shared__ float memory[];
  const int S = p.S, A = p.A, pitch = A + 1, group = blockIdx.y, heads = p.H / p.G;
  float *keys = memory, *values = keys + kTile * pitch, *queries = values + kTile * pitch,
        *d_out = queries + kTile * pitch, *probs = d_out + kTile * pitch,
        *d_scores = probs + kTile * (kTile + 1);
  const int64_t b = blockIdx.z, row = p.row();
  const int first = blockIdx.x * kTile, i = threadIdx.x / kTile, j = threadIdx.x % kTile, key = first + i;
  const T* sequence = t.qkv + b * S * row;
  const int32_t* doc_start = p.doc_start ? p.doc_start + b * S : nullptr;
  load_tile(keys, sequence + int64_t{p.H + group} * A, row, first, S, A);
  load_tile(values, sequence + int64_t{p.H + p.G + group} * A, row, first, S, A);
  float d_k[kColumns], d_v[kColumns];
#pragma unroll
  for (int r = 0; r < kColumns; ++r) d_k[r] = d_v[r] = 0;
  for (int h = group * heads; h < (group + 1) * heads; ++h)
    for (int at = first; at < S; at += kTile) {
      __syncthreads();
      load_tile(queries, sequence + int64_t{h} * A, row, at, S, A);
      load_tile(d_out, t.d_o + (b * S * p.H + h) * A, int64_t{p.H} * A, at, S, A);
      __syncthreads();
      const int query = at + j;
      float prob = 0, d_score = 0;
      if (query < S && key <= query && (doc_start == nullptr || key >= doc_start[query])) {
        const int64_t of_query = (b * p.H + h) * S + query;
        prob = expf(scale * dot(keys + i * pitch, queries + j * pitch, A) - t.lse[of_query]);
        d_score = prob * (dot(values + i * pitch, d_out + j * pitch, A) - t.delta[of_query]);
      }
      probs[i * (kTile + 1) + j] = prob;
      d_scores[i * (kTile + 1) + j] = d_score;
      __syncwarp();
      add_rows<kColumns>(d_v, probs + i * (kTile + 1), d_out, A);
      add_rows<kColumns>(d_k, d_scores + i * (kTile + 1), queries, A);
    }
  if (key >= S) return;
  T* to = t.d_qkv + (b * S + key) * row;
  store_columns<kColumns>(d_k, scale, to + int64_t{p.H + group} * A, A);
  store_columns<kColumns>(d_v, 1, to + int64_t{p.H + p.G + group} * A, A);
}

/// Launches a kernel on (tiles of S, heads, B) with `tiles` tiles and `squares` squares of shared memory.
template <class Kernel, class Tensors>
void launch(Kernel* kernel, const Problem& p, const Tensors& t, int heads, int tiles, int squares) {
  const int bytes = 4 * kTile * (tiles * (p.A + 1) + squares * (kTile + 1));
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  kernel<<<dim3((p.S + kTile - 1) / kTile, heads, static_cast<unsigned>(p.B)), kThreads, bytes, p.stream>>>(
      p, t, 1 / sqrtf(static_cast<float>(p.A)));
}

constexpr int kNarrow = 128 / kTile, kWide = kWidestPlain / kTile;  // columns of a thread

}  // namespace

template <class T>
void plain_forward(const Problem& p, const ForwardTensors<T>& t) {
  launch(p.A <= 128 ? forward_kernel<T, kNarrow> : forward_kernel<T, kWide>, p, t, p.H, 3, 1);
}

template <class T>
void plain_backward(const Problem& p, const BackwardTensors<T>& t) {
  make_delta(p, t);
  launch(p.A <= 128 ? query_pass<T, kNarrow> : query_pass<T, kWide>, p, t, p.H, 4, 1);
  launch(p.A <= 128 ? key_pass<T, kNarrow> : key_pass<T, kWide>, p, t, p.G, 4, 2);
}

template void plain_forward(const Problem&, const ForwardTensors<float>&);
template void plain_forward(const Problem&, const ForwardTensors<__nv_bfloat16>&);
template void plain_backward(const Problem&, const BackwardTensors<float>&);
template void plain_backward(const Problem&, const BackwardTensors<__nv_bfloat16>&);

}  // namespace moesaic::ops::attention
