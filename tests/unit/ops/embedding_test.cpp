#include "ops/embedding/embedding.h"

#include <gtest/gtest.h>

#include "support/op_runner.h"
#include "support/reference.h"

namespace moesaic::test {
namespace {

constexpr int64_t kVocabulary = 7;

std::vector<int32_t> tokens_of(int64_t count) {
  std::vector<int32_t> tokens;
  for (int64_t t = 0; t < count; ++t)
    tokens.push_back(static_cast<int32_t>(t * t % 5));  // ids 2, 3, 5, 6 are rare or absent
  return tokens;
}

std::vector<float> run_backward(int64_t count, int64_t width, DType type, int num_threads) {
  OpRunner r(num_threads);
  const Handle tokens = r.ints("tokens", {count}, tokens_of(count));
  const Handle dx = r.tensor("dx", {count, width}, as_bf16(randn(count * width, 2)), type);
  const Handle dtable = r.tensor("dtable", {kVocabulary, width}, randn(kVocabulary * width, 3));
  ops::embedding_backward(r.program(), Stream::compute, {.tokens = tokens, .dx = dx, .dtable = dtable});
  r.run();
  return r.get(dtable);
}

TEST(Embedding, ForwardCopiesRows) {
  for (const DType type : {DType::f32, DType::bf16})
    for (const int num_threads : {1, 2}) {
      OpRunner r(num_threads);
      const auto values = as_bf16(randn(kVocabulary * 5, 1));
      const Handle tokens = r.ints("tokens", {2, 4}, tokens_of(8)),
                   table = r.tensor("table", {kVocabulary, 5}, values, type);
      const Handle x = r.tensor("x", {8, 5}, {}, type);
      ops::embedding_forward(r.program(), Stream::compute, {.tokens = tokens, .table = table, .x = x});
      r.run();
      const auto rows = r.get(x);
      for (size_t t = 0; t < 8; ++t)
        for (size_t i = 0; i < 5; ++i)
          EXPECT_EQ(rows[t * 5 + i], values[static_cast<size_t>(tokens_of(8)[t]) * 5 + i]) << t;
    }
}

TEST(Embedding, BackwardAddsRowsInOrderOfTokens) {
  for (const int64_t width : {1, 64, 133}) {
    const int64_t count = 31;
    auto expected = randn(kVocabulary * width, 3);
    const auto dx = as_bf16(randn(count * width, 2));
    for (int64_t t = 0; t < count; ++t)
      for (int64_t i = 0; i < width; ++i)
        expected[static_cast<size_t>(tokens_of(count)[static_cast<size_t>(t)] * width + i)] +=
            dx[static_cast<size_t>(t * width + i)];
    for (const DType type : {DType::f32, DType::bf16})
      for (const int num_threads : {1, 2})
        EXPECT_EQ(run_backward(count, width, type, num_threads), expected) << width;
  }
}

TEST(Embedding, CostCountsRowsNotTheTable) {
  OpRunner r;
  const Handle tokens = r.ints("tokens", {4}), table = r.tensor("table", {9, 5}), x = r.tensor("x", {4, 5});
  ops::embedding_forward(r.program(), Stream::compute, {.tokens = tokens, .table = table, .x = x});
  ops::embedding_backward(r.program(), Stream::compute, {.tokens = tokens, .dx = x, .dtable = table});
  EXPECT_EQ(r.program().nodes()[0].cost.bytes, 4 * 4 + 2 * 4 * 5 * 4);
  EXPECT_EQ(r.program().nodes()[1].cost.bytes, 4 * 4 + 4 * 5 * 4 + 2 * 4 * 5 * 4);
  EXPECT_EQ(r.program().nodes()[1].cost.operations, 4 * 5);
}

}  // namespace
}  // namespace moesaic::test
