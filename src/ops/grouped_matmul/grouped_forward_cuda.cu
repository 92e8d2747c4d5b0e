#include "ops/grouped_matmul/grouped_gemm.cuh"

namespace moesaic::ops {

/// y [rows, N] = x [rows, K] w [N, K]^T: both operands run along K in memory.
void grouped_gemm_forward(cudaStream_t stream, const GroupedScratch& scratch, GroupedShape shape) {
  with_best_way(shape.n, static_cast<double>(shape.k), [&](auto way) {
    using Gemm = GroupedGemm<RowMajor, ColumnMajor, void, cutlass::bfloat16_t,
                             cutlass::epilogue::collective::EpilogueTileAuto, decltype(way)>;
    Gemm::run(stream, scratch, Gemm::Order::AlongM);
  });
}

}  // namespace moesaic::ops
