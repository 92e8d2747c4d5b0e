#include "ops/embedding/embedding_bodies.h"

#include <algorithm>

#include "ops/cpu_op.h"

namespace moesaic::ops {

void embedding_forward_cpu(const OpContext& c, const EmbeddingForward& args) {
  const auto row_bytes = static_cast<size_t>(c.shape(args.x)[-1] * size_of(c.dtype(args.x)));
  const int32_t* tokens = c.in<int32_t>(args.tokens);
  const std::byte* table = c.in_bytes(args.table);
  std::byte* x = c.out_bytes(args.x);
  parallel_for(c.shape(args.x).rows(), [&](int64_t t) {
    std::memcpy(x + static_cast<size_t>(t) * row_bytes, table + static_cast<size_t>(tokens[t]) * row_bytes,
                row_bytes);
  });
}

void embedding_backward_cpu(const OpContext& c, const EmbeddingBackward& args) {
  constexpr int64_t kColumns = 64;  // of one thread at a time, which sees all tokens in order
  const int64_t num_tokens = c.shape(args.dx).rows(), width = c.shape(args.dx)[-1];
  const int32_t* tokens = c.in<int32_t>(args.tokens);
  float* dtable = c.inout<float>(args.dtable);
  with_float(c.dtype(args.dx), [&](auto zero) {
    const auto* dx = c.in<decltype(zero)>(args.dx);
    parallel_for(ceil_div(width, kColumns), [&](int64_t part) {
      const int64_t first = part * kColumns, columns = std::min(kColumns, width - first);
      for (int64_t t = 0; t < num_tokens; ++t) {
        const auto* from = dx + t * width + first;
        float* to = dtable + tokens[t] * width + first;
        for (int64_t i = 0; i < columns; ++i) to[i] += static_cast<float>(from[i]);
      }
    });
  });
}

}  // namespace moesaic::ops
