#pragma once
// What stands between the QKV projection and attention: an optional RMSNorm of each query and key head
// (Qwen3), then rotary positions (Su et al., 2021) in the half-split form of Hugging Face: pairs (i, i +
// A/2). Layout of qkv: [T, (H + 2 G) A], a row is [H query heads | G key heads | G value heads]. Values are
// copied. On a GPU a head has at most 512 elements.
#include <vector>

#include "device/program.h"

namespace moesaic::ops {

/// out = rope(norm(qkv)); angle of pair i at position p: p * theta^(-2 i / A) in FP64, its cosine and sine
/// rounded to FP32. factors [A / 2], optional: angle of pair i divided by factors[i]; scale multiplies cosines and sines
/// (LongRoPE, arXiv 2402.13753). positions: i32 [T]. gain_q, gain_k: [A], both or neither. out may be qkv itself (in place). One
/// rounding, at the end. Cost: 3 operations (with gains 7) an element of q and k, each tensor once. Cosines and sines are
/// of a position, whatever the number of heads and layers, and not counted.
struct QkRopeForward {
  Handle qkv, positions, gain_q, gain_k, out;
  int64_t num_heads = 0, num_kv_heads = 0, head_dim = 0;
  float theta = 10000, eps = 1e-5f;
  std::vector<double> factors{};
  double scale = 1;
};
void qk_rope_forward(Program& g, Stream stream, const QkRopeForward& args);

/// d_qkv from d_out. With gains, qkv (before norm and rope) is needed, and d_gain_q, d_gain_k [A] f32 are
/// added to. d_qkv may be d_out itself (in place). The sums over rows are taken in blocks of 64 rows.
/// Cost: 3 operations (with gains 14) an element of q and k, each tensor once, d_gain twice.
struct QkRopeBackward {
  Handle d_out, qkv, positions, gain_q, gain_k, d_qkv, d_gain_q, d_gain_k;
  int64_t num_heads = 0, num_kv_heads = 0, head_dim = 0;
  float theta = 10000, eps = 1e-5f;
  Handle scratch;  // CUDA's working memory; filled in by the op
  std::vector<double> factors{};
  double scale = 1;
};
void qk_rope_backward(Program& g, Stream stream, const QkRopeBackward& given);

}  // namespace moesaic::ops
