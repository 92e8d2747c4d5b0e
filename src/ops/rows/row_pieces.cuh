#pragma once
// Rows cut into pieces of one warp each, for ops that read and write rows: many loads in flight whatever the width is, and
// neighbouring warps on neighbouring memory.
#include "ops/rows/words.cuh"

namespace moesaic::ops {

constexpr int kPieceThreads = 256;

/// Blocks of kPieceThreads for num_rows rows of row_packs packs, pieces of kDepth packs a lane.
template <int kDepth>
unsigned piece_blocks(int64_t num_rows, int64_t row_packs) {
  return num_blocks(ceil_div(num_rows * ceil_div(row_packs, 32 * kDepth), kPieceThreads / 32));
}

/// Calls f(row, pack) for each piece: the lane's packs are pack, pack + 32, ... (kDepth of them), those below row_packs. All
/// lanes of a warp get the same row.
template <int kDepth, class F>
__device__ void for_row_pieces(int64_t num_rows, int64_t row_packs, const F& f) {
  constexpr int kPiece = 32 * kDepth;
  const int64_t row_pieces = (row_packs + kPiece - 1) / kPiece, count = num_rows * row_pieces;
  const int64_t num_warps = static_cast<int64_t>(gridDim.x) * (kPieceThreads / 32);
  const int64_t first = static_cast<int64_t>(blockIdx.x) * (kPieceThreads / 32) + threadIdx.x / 32;
  for (int64_t i = first; i < count; i += num_warps) {
    const int64_t row = i / row_pieces;
    f(row, (i - row * row_pieces) * kPiece + threadIdx.x % 32);
  }
}

}  // namespace moesaic::ops
