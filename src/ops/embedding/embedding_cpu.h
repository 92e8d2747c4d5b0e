#pragma once
#include "device/op_context.h"
#include "ops/embedding/embedding.h"

namespace moesaic::ops {
void embedding_forward_cpu(const OpContext& c, const EmbeddingForward& args);
void embedding_backward_cpu(const OpContext& c, const EmbeddingBackward& args);
}  // namespace moesaic::ops
