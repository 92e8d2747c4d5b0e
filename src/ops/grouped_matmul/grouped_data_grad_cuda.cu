#include "ops/grouped_matmul/grouped_gemm.cuh"

namespace moesaic::ops {

/// dx [rows, K] = dy [rows, N] w [N, K]: the weights run across the sum, along the columns of dx.
void grouped_gemm_data_grad(cudaStream_t stream, const GroupedScratch& scratch, GroupedShape shape) {
  with_best_way(shape.k, static_cast<double>(shape.n), [&](auto way) {
    using Gemm = GroupedGemm<RowMajor, RowMajor, void, cutlass::bfloat16_t,
                             cutlass::epilogue::collective::EpilogueTileAuto, decltype(way)>;
    Gemm::run(stream, scratch, Gemm::Order::AlongM);
  });
}

}  // namespace moesaic::ops
