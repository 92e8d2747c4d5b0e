#include "ops/embedding/embedding.h"

#include "support/parity.h"

namespace moesaic::test {
namespace {

// Rows are copied, and added in the same order in FP32.
constexpr Bounds kBounds{.bf16 = 1e-9, .f32 = 1e-9};

std::vector<int32_t> uniform_ids(int64_t count, int64_t vocabulary) {
  std::mt19937_64 draw(test_seed());
  std::vector<int32_t> ids(static_cast<size_t>(count));
  for (int32_t& id : ids) id = static_cast<int32_t>(draw() % static_cast<uint64_t>(vocabulary));
  return ids;
}

void expect_backward(const std::vector<int32_t>& ids, int64_t vocabulary, int64_t width, DType type) {
  const auto count = static_cast<int64_t>(ids.size());
  SCOPED_TRACE(fmt::format("{} tokens of {}, rows of {} {}", count, vocabulary, width, name_of(type)));
  expect_parity(kBounds, [&](OpRunner& r) -> Outputs {
    const Handle tokens = r.ints("tokens", {count}, ids),
                 dx = r.tensor("dx", {count, width}, fresh_randn(count * width, 1), type),
                 dtable = r.tensor("dtable", {vocabulary, width}, fresh_randn(vocabulary * width, 2));
    ops::embedding_backward(r.program(), Stream::compute, {.tokens = tokens, .dx = dx, .dtable = dtable});
    return {dtable};
  });
}

TEST(EmbeddingParity, Forward) {
  for (const int64_t width : {1, 3, 6, 64, 520, 1004, 2048})
    for (const DType type : {DType::f32, DType::bf16})
      expect_parity(kBounds, [&](OpRunner& r) -> Outputs {
        const Handle tokens = r.ints("tokens", {3, 111}, uniform_ids(333, 50)),
                     table = r.tensor("table", {50, width}, fresh_randn(50 * width, 1), type),
                     x = r.tensor("x", {333, width}, {}, type);
        ops::embedding_forward(r.program(), Stream::compute, {.tokens = tokens, .table = table, .x = x});
        return {x};
      });
}

TEST(EmbeddingParity, BackwardOfShortRuns) {
  for (const int64_t width : {1, 3, 6, 64, 260, 1004})
    for (const DType type : {DType::f32, DType::bf16}) expect_backward(uniform_ids(333, 50), 50, width, type);
  for (const int64_t count : {1, 2, 31, 33, 64, 65})
    for (const int64_t vocabulary : {1, 2, 1000})
      expect_backward(uniform_ids(count, vocabulary), vocabulary, 20, DType::bf16);
}

TEST(EmbeddingParity, BackwardOfLongRuns) {
  // Runs of up to 64 tokens are short; a long one is added 128 tokens at a time.
  for (const int64_t count : {64, 65, 66, 127, 128, 129, 257, 1000})
    for (const DType type : {DType::f32, DType::bf16})
      expect_backward(std::vector<int32_t>(static_cast<size_t>(count), 2), 4, 70, type);
  for (const int64_t vocabulary : {2, 5, 9, 17})
    for (const DType type : {DType::f32, DType::bf16})
      expect_backward(uniform_ids(1201, vocabulary), vocabulary, 36, type);
  // One id much more often than the others, as padding is.
  std::vector<int32_t> ids = uniform_ids(3000, 700);
  for (size_t i = 0; i < ids.size(); ++i)
    if (i % 3 != 0) ids[i] = 350;
  for (const DType type : {DType::f32, DType::bf16}) expect_backward(ids, 700, 65, type);
}

TEST(EmbeddingParity, BackwardAcrossTheSortsTiles) {
  expect_backward(uniform_ids(40000, 151936), 151936, 4, DType::bf16);
}

}  // namespace
}  // namespace moesaic::test
