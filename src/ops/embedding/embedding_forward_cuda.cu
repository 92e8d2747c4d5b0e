#include "ops/cuda_op.cuh"
#include "ops/embedding/embedding_bodies.h"
#include "ops/rows/gather_cuda.h"

namespace moesaic::ops {

void embedding_forward_cuda(const OpContext& c, const EmbeddingForward& args) {
  gather_bytes(cuda_stream(c), c.in_bytes(args.table), c.in<int32_t>(args.tokens), nullptr,
               c.out_bytes(args.x), c.shape(args.x).rows(), c.shape(args.x)[-1] * size_of(c.dtype(args.x)));
}

}  // namespace moesaic::ops
