#pragma once
// Token embedding.
#include "device/program.h"

namespace moesaic::ops {

/// x[t] = table[tokens[t]]. tokens i32 [T] (any shape), table [V, D], x [T, D], the same dtype. The loader
/// has checked the ids. Cost: no operations; tokens once, T rows read, T written.
struct EmbeddingForward {
  Handle tokens, table, x;
};
void embedding_forward(Program& g, Stream stream, const EmbeddingForward& args);

/// dtable [V, D] f32 += dx[t] at row tokens[t]; tokens of one id are added in order of t, so repeats are
/// bit-equal. Cost: T D operations; tokens and dx once, min(T, V) rows of dtable twice.
struct EmbeddingBackward {
  Handle tokens, dx, dtable;
  Handle scratch;  // CUDA's working memory; filled in by the op
};
void embedding_backward(Program& g, Stream stream, const EmbeddingBackward& given);

}  // namespace moesaic::ops
