#include "ops/kv_copies/kv_copies_bodies.h"

#include "device/cpu/threads.h"

namespace moesaic::ops {

void sum_kv_copies_cpu(const OpContext& c, const SumKvCopies& args) {
  with_float(c.dtype(args.x), [&](auto zero) {
    using T = decltype(zero);
    const T* x = c.in<T>(args.x);
    T* y = c.out<T>(args.y);
    const int64_t A = args.head_dim, C = args.num_copies, queries = args.num_heads * A;
    const int64_t wide = c.shape(args.x)[-1], narrow = c.shape(args.y)[-1];
    parallel_for(c.shape(args.x).rows(), [&](int64_t t) {
      const T* from = x + t * wide;
      T* to = y + t * narrow;
      for (int64_t i = 0; i < queries; ++i) to[i] = from[i];
      for (int64_t head = 0; head < 2 * args.num_kv_heads; ++head)
        for (int64_t i = 0; i < A; ++i) {
          float sum = 0;
          for (int64_t copy = 0; copy < C; ++copy)
            sum += static_cast<float>(from[queries + (head * C + copy) * A + i]);
          to[queries + head * A + i] = static_cast<T>(sum);
        }
    });
  });
}

}  // namespace moesaic::ops
