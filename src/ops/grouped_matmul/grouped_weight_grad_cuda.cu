#include "ops/grouped_matmul/grouped_gemm.cuh"

namespace moesaic::ops {

/// dw [N, K] (+)= dy [rows, N]^T x [rows, K]: both operands run across the sum, which is over a group's rows. dw is read and
/// written in place, tile by tile, in pieces of 16 columns, which leave shared memory to the operands.
void grouped_gemm_weight_grad(cudaStream_t stream, const GroupedScratch& scratch, GroupedShape shape,
                              double rows_of_a_group, bool accumulate) {
  with_best_way(shape.k, rows_of_a_group, [&](auto way) {
    using Way = decltype(way);
    using Gemm = GroupedGemm<ColumnMajor, RowMajor, float, float,
                             cute::Shape<typename Way::StoredRows, Extent<16>>, Way>;
    Gemm::run(stream, scratch, shape.k <= shape.n ? Gemm::Order::AlongN : Gemm::Order::AlongM, accumulate);
  });
}

}  // namespace moesaic::ops
