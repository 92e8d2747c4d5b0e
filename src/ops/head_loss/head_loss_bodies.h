#pragma once
// The bodies, one per device.
#include "device/op_context.h"
#include "ops/head_loss/head_loss.h"

namespace moesaic::ops {
void head_loss_cpu(const OpContext& c, const HeadLoss& args);
void head_loss_cuda(const OpContext& c, const HeadLoss& args);

/// Where the parts of CUDA's working memory begin, in bytes: the products' own, the gradient of a chunk's logits in BF16 (of
/// BF16 with gradients), the partial sums of d_bias (with it), the losses of all tokens (without token_loss).
struct HeadLossScratch {
  int64_t gradient, bias_sums, losses, bytes;
};
HeadLossScratch head_loss_scratch(const Shape& logits, int64_t num_tokens, bool bf16_gradient,
                                  bool with_d_bias, bool with_losses);
}  // namespace moesaic::ops
