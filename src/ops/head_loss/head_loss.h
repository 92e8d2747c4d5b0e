#pragma once
// The output projection and the cross-entropy in one op, in chunks of tokens: all logits never exist at once.
// Forward and backward together, since the gradient is ready when the softmax is.
#include "device/program.h"

namespace moesaic::ops {

/// For each token with target >= 0: loss += -log softmax(x w^T)[target].
/// x [T, D], w [V, D], f32 or bf16; targets i32 [T], -1 = not counted. loss f32 [1] += sum over counted
/// tokens (not a mean); counted i32 [1] += their number. logits: f32 [chunk, V], scratch; its first dim is
/// the chunk. With dx: dx [T, D] = scale * d(sum of losses)/dx (zero rows where not counted) and dw [V, D]
/// f32 += (without accumulate =); scale: f32 [1] in device memory (1 / counted tokens of the whole step). Without dx, dw, scale: the
/// loss only. token_loss f32 [T], optional: each token's loss, 0 where not counted. Logits, softmax and loss
/// in FP32. bias [V], of w's type, is added to the logits, and with gradients d_bias [V] f32 is written or added to as dw
/// is. In BF16 the logits' gradient is rounded to BF16 before its two products. Cost: 2 T V D operations
/// forward, 4 T V D more with gradients; each tensor but logits once, loss and counted twice, dw and d_bias
/// twice (once without accumulate).
struct HeadLoss {
  Handle x, w, targets, scale, logits, loss, counted, dx, dw, token_loss;
  bool accumulate = true;
  Handle scratch;  // CUDA's working memory; filled in by the op
  Handle bias{}, d_bias{};
};
void head_loss(Program& g, Stream stream, const HeadLoss& args);

}  // namespace moesaic::ops
