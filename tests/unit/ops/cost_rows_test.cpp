// Costs of ops on rows.
#include "ops/embedding/embedding.h"
#include "ops/kv_copies/kv_copies.h"
#include "ops/rows/rows.h"
#include "support/cost_check.h"

namespace moesaic::test {
namespace {

constexpr Stream kStream = Stream::compute;
constexpr DType kTypes[] = {DType::f32, DType::bf16};

Numbers sum(Numbers a, const Numbers& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

TEST(Cost, OfKvCopies) {
  for (const DType type : kTypes) {
    constexpr int64_t H = 3, G = 2, C = 3, A = 4;
    CostCheck c(type);
    const Handle x = c.random({1, (H + 2 * G * C) * A}), y = c.blank({1, (H + 2 * G) * A});
    ops::sum_kv_copies(c.program(), kStream,
                       {.x = x, .y = y, .num_heads = H, .num_kv_heads = G, .num_copies = C, .head_dim = A});
    EXPECT_EQ(c.left_out([&] {
      const Numbers all = c.numbers(x);
      Numbers s(all.begin(), all.begin() + H * A);
      for (int64_t head = 0; head < 2 * G; ++head)
        for (int64_t i = 0; i < A; ++i) {
          const auto of_copy = [&](int64_t copy) { return all[size_t((H + head * C + copy) * A + i)]; };
          s.push_back(of_copy(0) + of_copy(1) + of_copy(2));
        }
      return Outputs{{y, s}};
    }),
              0);
  }
}

/// Every row of every tensor is used, so that all that is declared moves.
TEST(Cost, OfRowsByIndex) {
  constexpr int64_t N = 5, K = 3, W = 8;
  for (const DType type : kTypes) {
    CostCheck gather(type), add(type);
    const Handle x = gather.random({N, W}), map = gather.count_up({N}, N), y = gather.blank({N, W});
    const Handle rows = gather.ints("rows", {1}, {N});
    ops::gather_rows(gather.program(), kStream,
                     {.x = x, .map = map, .count_of = rows, .y = y, .expected_rows = N});
    EXPECT_EQ(gather.left_out([&] { return Outputs{{y, gather.numbers(x)}}; }), 0);

    const Handle terms = add.random({N * K, W}), entries = add.count_up({N, K}, N * K),
                 map_row = add.count_up({N}, N), first = add.random({N, W}), z = add.blank({N, W});
    ops::sum_rows(add.program(), kStream,
                  {.x = terms,
                   .map = entries,
                   .map_row = map_row,
                   .count_of = add.ints("rows", {1}, {N}),
                   .add = first,
                   .y = z,
                   .expected_rows = N * K});
    EXPECT_EQ(add.left_out([&] {
      Numbers all;
      for (int64_t i = 0; i < N; ++i) {
        Numbers s = add.row(first, i);
        for (int64_t k = 0; k < K; ++k) s = sum(s, add.row(terms, i * K + k));
        all.insert(all.end(), s.begin(), s.end());
      }
      return Outputs{{z, all}};
    }),
              0);
  }
}

TEST(Cost, OfEmbeddings) {
  constexpr int64_t T = 4, V = 9, D = 5;
  for (const DType type : kTypes) {
    CostCheck forward(type), backward(type);
    const Handle tokens = forward.count_up({T}, V), table = forward.random({V, D}), x = forward.blank({T, D});
    ops::embedding_forward(forward.program(), kStream, {.tokens = tokens, .table = table, .x = x});
    forward.moves_only(table, double(T * D * size_of(type)), "a row for each token");
    EXPECT_EQ(forward.left_out([&] {
      const Numbers rows = forward.numbers(table);
      return Outputs{{x, {rows.begin(), rows.begin() + T * D}}};
    }),
              0);
    const Handle ids = backward.count_up({T}, V), dx = backward.random({T, D}),
                 dtable = backward.random_f32({V, D});
    ops::embedding_backward(backward.program(), kStream, {.tokens = ids, .dx = dx, .dtable = dtable});
    backward.moves_only(dtable, 4 * T * D, "a row for each token");
    EXPECT_EQ(backward.left_out([&] {
      const Numbers rows = backward.numbers(dtable);
      return Outputs{{dtable, sum({rows.begin(), rows.begin() + T * D}, backward.numbers(dx))}};
    }),
              0);
  }
}

}  // namespace
}  // namespace moesaic::test
