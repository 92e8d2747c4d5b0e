#pragma once
// The bodies, one per device.
#include "device/op_context.h"
#include "ops/embedding/embedding.h"

namespace moesaic::ops {
void embedding_forward_cpu(const OpContext& c, const EmbeddingForward& args);
void embedding_forward_cuda(const OpContext& c, const EmbeddingForward& args);
void embedding_backward_cpu(const OpContext& c, const EmbeddingBackward& args);
void embedding_backward_cuda(const OpContext& c, const EmbeddingBackward& args);

/// Scratch of the CUDA body for T tokens: three lists of T numbers, then what the sort works in.
constexpr int64_t embedding_list_bytes(int64_t num_tokens) {
  return round_up(4 * num_tokens, 256);
}
/// The radix sort has a second copy of both lists and counts per tile; the rest is room.
constexpr int64_t embedding_sort_bytes(int64_t num_tokens) {
  return 16 * num_tokens + (int64_t{1} << 20);
}
}  // namespace moesaic::ops
