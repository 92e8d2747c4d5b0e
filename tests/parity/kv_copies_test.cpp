#include "ops/kv_copies/kv_copies.h"

#include "support/parity.h"

namespace moesaic::test {
namespace {

TEST(KvCopiesParity, CopiesAndSums) {
  struct Heads {
    int64_t num_heads, num_kv_heads, num_copies, head_dim;
  };
  for (const Heads& k :
       {Heads{4, 2, 3, 7}, {1, 1, 1, 1}, {4, 2, 2, 128}, {8, 1, 8, 64}, {3, 2, 5, 20}, {32, 4, 2, 128}})
    for (const int64_t rows : {1, 5, 130})
      for (const DType type : {DType::f32, DType::bf16})
        // The same FP32 sums in the same order.
        expect_parity({.bf16 = 1e-9, .f32 = 1e-9}, [&](OpRunner& r) -> Outputs {
          const int64_t wide = (k.num_heads + 2 * k.num_kv_heads * k.num_copies) * k.head_dim,
                        narrow = (k.num_heads + 2 * k.num_kv_heads) * k.head_dim;
          const Handle x = r.tensor("x", {rows, wide}, fresh_randn(rows * wide, 1), type),
                       y = r.tensor("y", {rows, narrow}, {}, type);
          ops::sum_kv_copies(r.program(), Stream::compute,
                             {.x = x,
                              .y = y,
                              .num_heads = k.num_heads,
                              .num_kv_heads = k.num_kv_heads,
                              .num_copies = k.num_copies,
                              .head_dim = k.head_dim});
          return {y};
        });
}

}  // namespace
}  // namespace moesaic::test
