// The CUDA bodies of a build without CUDA: never called, since no CUDA device can be made there (device/no_cuda.cpp).
#include "ops/attention/attention_bodies.h"
#include "ops/balance/balance_bodies.h"
#include "ops/bias/bias_bodies.h"
#include "ops/dispatch_plan/dispatch_plan_bodies.h"
#include "ops/elementwise/elementwise_bodies.h"
#include "ops/embedding/embedding_bodies.h"
#include "ops/grouped_matmul/grouped_matmul_bodies.h"
#include "ops/head_loss/head_loss_bodies.h"
#include "ops/initialize/initialize_bodies.h"
#include "ops/kv_copies/kv_copies_bodies.h"
#include "ops/matmul/gemm_choices.h"
#include "ops/matmul/matmul_bodies.h"
#include "ops/norm/norm_bodies.h"
#include "ops/optimizer/optimizer_bodies.h"
#include "ops/qk_rope/qk_rope_bodies.h"
#include "ops/rmsnorm/rmsnorm_bodies.h"
#include "ops/router/router_bodies.h"
#include "ops/rows/rows_bodies.h"
#include "ops/swiglu/swiglu_bodies.h"

namespace moesaic::ops {

#define NO_CUDA(op, Args)                           \
  void op##_cuda(const OpContext&, const Args&) {   \
    MOESAIC_CHECK(false, "this build has no CUDA"); \
  }

NO_CUDA(attention_forward, AttentionForward)
NO_CUDA(attention_backward, AttentionBackward)
int64_t attention_forward_scratch(const Program&, const AttentionForward&) {
  return 0;
}
int64_t attention_backward_scratch(const Program&, const AttentionBackward&) {
  return 0;
}
NO_CUDA(sum_parts, SumParts)
NO_CUDA(balance_count, BalanceCount)
NO_CUDA(balance_loss, BalanceLoss)
NO_CUDA(z_loss, ZLoss)
NO_CUDA(capacity, Capacity)
NO_CUDA(add_counts, AddCounts)
NO_CUDA(add_bias, AddBias)
NO_CUDA(bias_backward, BiasBackward)
NO_CUDA(dispatch_plan, DispatchPlan)
NO_CUDA(zero, Zero)
NO_CUDA(copy, Copy)
NO_CUDA(add, Add)
NO_CUDA(embedding_forward, EmbeddingForward)
NO_CUDA(embedding_backward, EmbeddingBackward)
NO_CUDA(grouped_matmul, GroupedMatmul)
NO_CUDA(grouped_matmul_weight_grad, GroupedMatmulWeightGrad)
NO_CUDA(head_loss, HeadLoss)
NO_CUDA(initialize, Initialize)
NO_CUDA(sum_kv_copies, SumKvCopies)
NO_CUDA(matmul, Matmul)
NO_CUDA(sum_of_squares, Reduction)
NO_CUDA(count_nonfinite, Reduction)
NO_CUDA(verdict, Verdict)
NO_CUDA(adamw, AdamW)
NO_CUDA(sgd, Sgd)
NO_CUDA(qk_rope_forward, QkRopeForward)
NO_CUDA(qk_rope_backward, QkRopeBackward)
NO_CUDA(rmsnorm_forward, RmsNormForward)
NO_CUDA(rmsnorm_backward, RmsNormBackward)
NO_CUDA(router_forward, RouterForward)
NO_CUDA(router_backward, RouterBackward)
NO_CUDA(router_bias_update, RouterBiasUpdate)
NO_CUDA(gather_rows, GatherRows)
NO_CUDA(sum_rows, SumRows)
NO_CUDA(swiglu_forward, SwigluForward)
NO_CUDA(swiglu_backward, SwigluBackward)

#undef NO_CUDA

std::string gemm_library() {
  return {};
}
void use_gemm_choices(const std::map<std::string, std::string>&) {}
int64_t gemm_tuning_bytes() {
  return 0;
}
std::vector<GemmChoice> tune_gemms(std::byte*) {
  return {};
}

}  // namespace moesaic::ops
