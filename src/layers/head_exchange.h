#pragma once
// Ulysses: every rank of a group holds all heads of its stretch of each sequence, and for attention its heads of whole sequences.
// Between the two, rows are exchanged on the comm stream, in parts of whole sequences: one part travels while another is
// attended to.
#include <vector>

#include "layers/pass.h"

namespace moesaic {

/// Sequences [first, first + count) of a micro-batch, which know nothing of the others.
struct Sequences {
  int64_t first, count;
};

/// Two halves where one may be exchanged while the other is attended to.
std::vector<Sequences> halves(const LayerSpec& spec);
/// A view: their part of a tensor whose slowest dimension goes over the sequences, or over their tokens.
Handle part(Pass& p, Handle whole, Sequences which);

/// Records attn [B, S, H/n heads] <-> attn_x [B, S/n, H heads], of some sequences.
void exchange_heads(Pass& p, Sequences which, Handle from, Handle to, bool to_heads, const std::string& what);
/// Records qkv [B, S/n, (H + 2G) heads] -> qkv_x [B, S, (Hl + 2 Gl) heads], of some sequences.
void exchange_qkv(Pass& p, Sequences which, Handle qkv, Handle qkv_x);

/// The way back of d_qkv: where there are more ranks than key/value heads, copies of these come back, and are summed.
class DqkvReturn {
 public:
  /// d_qkv [T, (H + 2 G) heads] is what is filled; `p` outlives this.
  DqkvReturn(Pass& p, Handle d_qkv);
  /// Records d_qkv_x [B, S, (Hl + 2 Gl) heads] of some sequences, to [B, S/n, (H + 2 G) heads].
  void send(Sequences which, Handle d_qkv_x);
  /// Once all have been sent: records the sums, on the compute stream.
  void finish();

 private:
  Pass& p_;
  Handle d_qkv_;
  int64_t num_copies_, heads_, wide_;
  Handle to_;
};

}  // namespace moesaic
