#pragma once
// Causal attention with grouped queries, blocked with a running softmax (FlashAttention: Dao et al., 2022):
// no S x S matrix. Query head h uses key/value head h / (H / G). Scale 1 / sqrt(A). Letters here are local: H
// and G are the heads of this rank (after the head exchange), S is the whole sequence.
#include "device/program.h"

namespace moesaic::ops {

/// qkv: [B, S, (H + 2 G) A], a row is [H query heads | G key heads | G value heads] (qk_rope.h).
/// o: [B, S, H A]. lse: [B, H, S] f32, the log-sum-exp of each row's scaled scores.
/// doc_start: i32 [B, S], optional: position i sees positions doc_start[i] .. i (packed documents).
/// Scores, softmax and sums in FP32; o rounded once. A GPU rounds the weights to BF16 before they meet BF16 values.
/// Cost: 2 B S^2 H A operations (4 S^2 A per head, halved because causal); qkv, o, lse once.
/// On a GPU a head is at most 512 wide, and sequences without doc_start are much faster than those with it.
struct AttentionForward {
  Handle qkv, doc_start, o, lse;
  int64_t num_heads = 0, num_kv_heads = 0, head_dim = 0;
  Handle scratch;  // CUDA's working memory; filled in by the op
};
void attention_forward(Program& g, Stream stream, const AttentionForward& args);

/// What a GPU may do in the backward; a CPU ignores it.
struct AttentionTuning {
  /// Repeats are bit-equal. Without it cuDNN adds up d_q in any order, and needs no S x S matrix for that.
  bool deterministic = true;
  /// Bytes that cuDNN's deterministic kernel should work in: it holds 2 S^2 bytes per query head, so heads are done in
  /// several launches when all of them need more. The heads of one key/value head are never parted; where they alone need
  /// more than four times this, a slower kernel without such a matrix runs.
  int64_t workspace = int64_t{1} << 30;
};

/// d_qkv [B, S, (H + 2 G) A] from d_o; deterministic (fixed order of sums). Cost: 5 B S^2 H A operations.
struct AttentionBackward {
  Handle d_o, qkv, o, lse, doc_start, d_qkv;
  int64_t num_heads = 0, num_kv_heads = 0, head_dim = 0;
  AttentionTuning tuning;
  Handle scratch;  // CUDA's working memory; filled in by the op
};
void attention_backward(Program& g, Stream stream, const AttentionBackward& args);

}  // namespace moesaic::ops
