#include "ops/grouped_matmul/grouped_gemm.cuh"

namespace moesaic::ops {

/// dw [N, K] (+)= dy [rows, N]^T x [rows, K]: both operands run across the sum, which is over a group's rows. dw is read and
/// written in place, tile by tile. Pieces of 16 columns leave room for a fourth stage of operands beside FP32 dw.
void grouped_gemm_weight_grad(cudaStream_t stream, const GroupedScratch& scratch, GroupedShape shape,
                              bool accumulate) {
  using Gemm = GroupedGemm<ColumnMajor, RowMajor, float, float, cute::Shape<Extent<128>, Extent<16>>>;
  Gemm::run(stream, scratch, shape.k <= shape.n ? Gemm::Order::AlongN : Gemm::Order::AlongM, accumulate);
}

}  // namespace moesaic::ops
