#pragma once
// Causal attention with grouped queries, blocked with a running softmax (FlashAttention: Dao et al., 2022):
// no S x S matrix. Query head h uses key/value head h / (H / G). Scale 1 / sqrt(A). Letters here are local: H
// and G are the heads of this rank (after the head exchange), S is the whole sequence.
#include "device/program.h"

namespace moesaic::ops {

/// qkv: [B, S, (H + 2 G) A], a row is [H query heads | G key heads | G value heads] (qk_rope.h).
/// o: [B, S, H A]. lse: [B, H, S] f32, the log-sum-exp of each row's scaled scores.
/// doc_start: i32 [B, S], optional: position i sees positions doc_start[i] .. i (packed documents).
/// Scores, softmax and sums in FP32; o rounded once.
/// Cost: 2 B S^2 H A operations (4 S^2 A per head, halved because causal); qkv, o, lse once.
struct AttentionForward {
  Handle qkv, doc_start, o, lse;
  int64_t num_heads = 0, num_kv_heads = 0, head_dim = 0;
};
void attention_forward(Program& g, Stream stream, const AttentionForward& args);

/// d_qkv [B, S, (H + 2 G) A] from d_o; deterministic (fixed order of sums). Cost: 5 B S^2 H A operations.
struct AttentionBackward {
  Handle d_o, qkv, o, lse, doc_start, d_qkv;
  int64_t num_heads = 0, num_kv_heads = 0, head_dim = 0;
};
void attention_backward(Program& g, Stream stream, const AttentionBackward& args);

}  // namespace moesaic::ops
