#include "ops/rows/gather_cuda.h"
#include "ops/rows/row_pieces.cuh"
#include "ops/rows/rows_bodies.h"

namespace moesaic::ops {
namespace {

constexpr int kDepth = 4;  // packs of a lane in flight

/// Pack: what one access moves.
template <class Pack>
__global__ void __launch_bounds__(kPieceThreads)
    gather_kernel(const Pack* x, const int32_t* map, const int32_t* count, Pack* y, int64_t all_rows,
                  int64_t row_packs) {
  for_row_pieces<kDepth>(num_rows(count, all_rows), row_packs, [&](int64_t row, int64_t pack) {
    const Pack* from = x + map[row] * row_packs;
    Pack* to = y + row * row_packs;
    Pack values[kDepth];
#pragma unroll
    for (int d = 0; d < kDepth; ++d)
      if (pack + 32 * d < row_packs) values[d] = from[pack + 32 * d];
#pragma unroll
    for (int d = 0; d < kDepth; ++d)
      if (pack + 32 * d < row_packs) to[pack + 32 * d] = values[d];
  });
}

template <class Pack>
bool launch(cudaStream_t stream, const void* x, const int32_t* map, const int32_t* count, void* y,
            int64_t num_rows, int64_t row_bytes) {
  constexpr auto kBytes = static_cast<int64_t>(sizeof(Pack));
  if (!packs(x, row_bytes, kBytes, 1) || !packs(y, row_bytes, kBytes, 1)) return false;
  const int64_t row_packs = row_bytes / kBytes;
  gather_kernel<<<piece_blocks<kDepth>(num_rows, row_packs), kPieceThreads, 0, stream>>>(
      static_cast<const Pack*>(x), map, count, static_cast<Pack*>(y), num_rows, row_packs);
  return true;
}

}  // namespace

void gather_bytes(cudaStream_t stream, const void* x, const int32_t* map, const int32_t* count, void* y,
                  int64_t num_rows, int64_t row_bytes) {
  launch<uint4>(stream, x, map, count, y, num_rows, row_bytes) ||
      launch<uint32_t>(stream, x, map, count, y, num_rows, row_bytes) ||
      launch<uint16_t>(stream, x, map, count, y, num_rows, row_bytes) ||
      launch<uint8_t>(stream, x, map, count, y, num_rows, row_bytes);
}

void gather_rows_cuda(const OpContext& c, const GatherRows& args) {
  gather_bytes(cuda_stream(c), c.in_bytes(args.x), c.in<int32_t>(args.map), count_pointer(c, args.count_of),
               c.out_bytes(args.y), c.shape(args.y).rows(), c.shape(args.y)[-1] * size_of(c.dtype(args.y)));
}

}  // namespace moesaic::ops
