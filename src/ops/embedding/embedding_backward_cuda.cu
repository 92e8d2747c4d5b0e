// Tokens are sorted by id, those of one id staying in order (the sort is stable). Then each run of equal ids is added to its
// row of the table by one warp per piece of columns, in order; long runs by a block, of which one warp adds what the others
// have loaded.
#include <bit>
#include <cub/device/device_radix_sort.cuh>

#include "device/cuda/cuda_check.h"
#include "ops/embedding/embedding_bodies.h"
#include "ops/rows/row_pieces.cuh"

namespace moesaic::ops {
namespace {

constexpr int kLong = 64;                // a run of more tokens is a long one
constexpr int kDepth = 8;                // packs of a lane in flight in a short run
constexpr int kLoaders = 8, kLoad = 16;  // warps that load in a long run, and rows that each loads at a time
constexpr int kTile = kLoaders * kLoad, kLongThreads = 32 * (1 + kLoaders);
constexpr unsigned kWarp = 0xffffffffu;

template <class T>
struct Pointers {
  const int32_t *ids, *order;  // [count] sorted by id; order: the token that stands there
  const T* dx;
  float* dtable;
  int64_t count, width;
};

__global__ void iota_kernel(int32_t* values, int64_t count) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) values[i] = static_cast<int32_t>(i);
}

/// Whether the run that begins at `head` is a long one.
template <class T>
__device__ bool is_long(const Pointers<T>& p, int64_t head, int32_t id) {
  return head + kLong < p.count && p.ids[head + kLong] == id;
}

template <int N, class T>
__global__ void __launch_bounds__(kPieceThreads) short_runs_kernel(Pointers<T> p) {
  const int64_t row_packs = p.width / N;
  const int lane = static_cast<int>(threadIdx.x % 32);
  for_row_pieces<kDepth>(p.count, row_packs, [&](int64_t head, int64_t pack) {
    const int32_t id = p.ids[head];
    if ((head > 0 && p.ids[head - 1] == id) || is_long(p, head, id)) return;
    float* to = p.dtable + id * p.width;
    float sums[kDepth][N];
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
      if (pack + 32 * d >= row_packs) continue;
      const auto words = load_words<N>(to + (pack + 32 * d) * N);
#pragma unroll
      for (int i = 0; i < N; ++i) sums[d][i] = words[i];
    }
    for (int64_t at = head;; at += 32) {
      const bool same = at + lane < p.count && p.ids[at + lane] == id;
      const int32_t token = same ? p.order[at + lane] : 0;
      const int num = __popc(__ballot_sync(kWarp, same));  // the first ones: equal ids are neighbours
      for (int r = 0; r < num; ++r) {
        const T* from = p.dx + __shfl_sync(kWarp, token, r) * p.width;
        Words<T, N> row[kDepth];
#pragma unroll
        for (int d = 0; d < kDepth; ++d)
          if (pack + 32 * d < row_packs) row[d] = load_words<N>(from + (pack + 32 * d) * N);
#pragma unroll
        for (int d = 0; d < kDepth; ++d)
          if (pack + 32 * d < row_packs)
#pragma unroll
            for (int i = 0; i < N; ++i) sums[d][i] += row[d][i];
      }
      if (num < 32) break;
    }
#pragma unroll
    for (int d = 0; d < kDepth; ++d)
      if (pack + 32 * d < row_packs) store_words(to + (pack + 32 * d) * N, sums[d]);
  });
}

/// The beginning of the long run whose first position that is a multiple of kLong is q (every long run has one); -1: none.
template <class T>
__device__ int64_t long_head(const Pointers<T>& p, int64_t q) {
  if (q + 1 >= p.count) return -1;
  const int32_t id = p.ids[q];
  if (p.ids[q + 1] != id || (q > 0 && p.ids[q - kLong] == id)) return -1;
  int64_t low = max(q - kLong, int64_t{0}), high = q;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (p.ids[middle] == id)
      high = middle;
    else
      low = middle + 1;
  }
  return is_long(p, low, id) ? low : -1;
}

/// Adds the run from `head` on in 32 columns. Every thread of the block calls it.
template <class T>
__device__ void add_long_run(const Pointers<T>& p, int64_t head, int64_t column) {
  __shared__ float tiles[2][kTile][32];
  const int lane = static_cast<int>(threadIdx.x % 32), loader = static_cast<int>(threadIdx.x / 32) - 1;
  const int32_t id = p.ids[head];
  float* to = p.dtable + id * p.width + column;
  float sum = loader < 0 && column < p.width ? *to : 0;
  int buffer = 0;
  for (int64_t at = head;; at += kTile, buffer ^= 1) {
    bool same = false;
    if (loader >= 0) {
      const int64_t mine = at + loader * kLoad + lane;
      same = lane < kLoad && mine < p.count && p.ids[mine] == id;
      const int32_t token = same ? p.order[mine] : 0;
      const int num = __popc(__ballot_sync(kWarp, same));
      float values[kLoad];
#pragma unroll
      for (int r = 0; r < kLoad; ++r) {
        const int64_t row = __shfl_sync(kWarp, token, r);
        if (r < num && column < p.width) values[r] = to_float(p.dx[row * p.width + column]);
      }
#pragma unroll
      for (int r = 0; r < kLoad; ++r)
        if (r < num && column < p.width) tiles[buffer][loader * kLoad + r][lane] = values[r];
    }
    // The tile is whole, and the one before it has been added, so that its memory may be filled again.
    const int num = __syncthreads_count(same);
    if (loader < 0 && column < p.width)
#pragma unroll 8
      for (int r = 0; r < num; ++r) sum += tiles[buffer][r][lane];
    if (num < kTile) break;
  }
  if (loader < 0 && column < p.width) *to = sum;
  __syncthreads();
}

/// Threads look for long runs, and the block then adds those found. Blocks beside each other have other columns, those below
/// each other other runs.
template <class T>
__global__ void __launch_bounds__(kLongThreads) long_runs_kernel(Pointers<T> p) {
  __shared__ int64_t heads[kLongThreads];
  __shared__ int num_heads;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * 32 + threadIdx.x % 32;
  const int64_t stride = static_cast<int64_t>(gridDim.y) * kLong;
  for (int64_t base = static_cast<int64_t>(blockIdx.y) * kLong; base < p.count;
       base += stride * kLongThreads) {
    if (threadIdx.x == 0) num_heads = 0;
    __syncthreads();
    const int64_t head = long_head(p, base + stride * threadIdx.x);
    if (head >= 0)
      heads[atomicAdd(&num_heads, 1)] = head;  // in any order: they have nothing to do with each other
    __syncthreads();
    const int num = num_heads;
    __syncthreads();  // before it is set to 0 again
    for (int i = 0; i < num; ++i) add_long_run(p, heads[i], column);
  }
}

template <class T>
void add_runs(cudaStream_t stream, const Pointers<T>& p) {
  constexpr int N = 4;
  if (packs(p.dx, p.width, N, sizeof(T)) && packs(p.dtable, p.width, N, 4))
    short_runs_kernel<N><<<piece_blocks<kDepth>(p.count, p.width / N), kPieceThreads, 0, stream>>>(p);
  else
    short_runs_kernel<1><<<piece_blocks<kDepth>(p.count, p.width), kPieceThreads, 0, stream>>>(p);
  if (p.count <= kLong) return;
  const dim3 grid(static_cast<unsigned>(ceil_div(p.width, 32)), num_blocks(ceil_div(p.count, kLong), 8));
  long_runs_kernel<<<grid, kLongThreads, 0, stream>>>(p);
}

}  // namespace

void embedding_backward_cuda(const OpContext& c, const EmbeddingBackward& args) {
  const int64_t count = c.shape(args.dx).rows(), list = embedding_list_bytes(count);
  if (count == 0) return;
  const cudaStream_t stream = cuda_stream(c);
  uint8_t* scratch = c.out<uint8_t>(args.scratch);
  auto* ids = reinterpret_cast<uint32_t*>(scratch);
  auto* numbers = reinterpret_cast<int32_t*>(scratch + list);
  auto* order = reinterpret_cast<int32_t*>(scratch + 2 * list);
  iota_kernel<<<static_cast<unsigned>(ceil_div(count, 256)), 256, 0, stream>>>(numbers, count);
  auto sort_bytes = static_cast<size_t>(embedding_sort_bytes(count));
  const int bits =
      std::max(1, static_cast<int>(std::bit_width(static_cast<uint64_t>(c.shape(args.dtable)[0] - 1))));
  cuda_check(cub::DeviceRadixSort::SortPairs(scratch + 3 * list, sort_bytes,
                                             reinterpret_cast<const uint32_t*>(c.in<int32_t>(args.tokens)),
                                             ids, numbers, order, static_cast<int>(count), 0, bits, stream),
             "sorting the tokens");
  with_float(c.dtype(args.dx), [&](auto zero) {
    using T = decltype(zero);
    add_runs(stream, Pointers<CudaType<T>>{.ids = reinterpret_cast<const int32_t*>(ids),
                                           .order = order,
                                           .dx = cuda_pointer(c.in<T>(args.dx)),
                                           .dtable = c.inout<float>(args.dtable),
                                           .count = count,
                                           .width = c.shape(args.dx)[-1]});
  });
}

}  // namespace moesaic::ops
