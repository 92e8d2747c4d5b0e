#include "ops/kv_copies/kv_copies.h"

#include <gtest/gtest.h>

#include "support/op_runner.h"
#include "support/reference.h"

namespace moesaic::test {
namespace {

TEST(KvCopies, CopiesQueriesAndAddsTheCopiesOfEachHeadInOrder) {
  const int64_t T = 5, H = 4, G = 2, C = 3, A = 7, wide = (H + 2 * G * C) * A;
  const auto x = as_bf16(randn(T * wide, 1));
  std::vector<float> expected;
  for (int64_t t = 0; t < T; ++t) {
    const auto at = [&](int64_t i) { return x[static_cast<size_t>(t * wide + i)]; };
    for (int64_t i = 0; i < H * A; ++i) expected.push_back(at(i));
    for (int64_t head = 0; head < 2 * G; ++head)
      for (int64_t i = 0; i < A; ++i) {
        const auto copy = [&](int64_t c) { return at((H + head * C + c) * A + i); };
        expected.push_back(copy(0) + copy(1) + copy(2));
      }
  }
  for (const int num_threads : {1, 2})
    for (const DType type : {DType::f32, DType::bf16}) {
      OpRunner r(num_threads);
      const Handle xh = r.tensor("x", {T, wide}, x, type), y = r.tensor("y", {T, (H + 2 * G) * A}, {}, type);
      ops::sum_kv_copies(
          r.program(), Stream::compute,
          {.x = xh, .y = y, .num_heads = H, .num_kv_heads = G, .num_copies = C, .head_dim = A});
      EXPECT_EQ(r.program().nodes()[0].cost.bytes, (T * wide + T * (H + 2 * G) * A) * size_of(type));
      r.run();
      EXPECT_EQ(r.get(y), type == DType::bf16 ? as_bf16(expected) : expected);
    }
}

}  // namespace
}  // namespace moesaic::test
