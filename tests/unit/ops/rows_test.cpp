#include "ops/rows/rows.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/op_runner.h"
#include "support/reference.h"

namespace moesaic::test {
namespace {

constexpr int64_t kWidth = 11, kSource = 9, kRows = 7;

TEST(GatherRows, CopiesRowsUpToTheCount) {
  const auto x = as_bf16(randn(kSource * kWidth, 1));
  const std::vector<int32_t> map = {8, 0, 3, 3, 5, 1, 2};
  for (const int num_threads : {1, 2})
    for (const DType type : {DType::f32, DType::bf16})
      for (const int32_t count : {-1, 0, 1, 5, 7}) {
        OpRunner r(num_threads);
        const Handle xh = r.tensor("x", {kSource, kWidth}, x, type),
                     y = r.tensor("y", {kRows, kWidth}, {}, type);
        const Handle count_of = count < 0 ? Handle{} : r.ints("offsets", {3}, {0, 99, count});
        ops::gather_rows(r.program(), Stream::compute,
                         {.x = xh, .map = r.ints("map", {kRows}, map), .count_of = count_of, .y = y});
        r.run();
        const auto rows = r.get(y);
        for (int64_t i = 0; i < kRows; ++i)
          for (int64_t j = 0; j < kWidth; ++j) {
            const float value = rows[static_cast<size_t>(i * kWidth + j)];
            if (count >= 0 && i >= count)
              EXPECT_TRUE(std::isnan(value)) << i;
            else
              EXPECT_EQ(value, x[static_cast<size_t>(map[static_cast<size_t>(i)] * kWidth + j)]) << i;
          }
      }
}

struct Case {
  bool with_add = true, with_map_row = true;
  int32_t count = kRows;  // -1: absent
  DType x = DType::f32, add = DType::f32, y = DType::f32;
  int num_threads = 1;
};

const std::vector<int32_t> kMap = {8,  0, -1, -1, -1, -1, 3,  -1, 4, 1, 1,  1, -1, 2,
                                   -1, 7, 5,  6,  0,  -1, -1, 2,  8, 0, -1, 4, 5};  // [9, 3]
const std::vector<int32_t> kMapRow = {2, 8, 0, 1, 5, 3, 7};

std::vector<float> run(const Case& c) {
  OpRunner r(c.num_threads);
  ops::SumRows args{.x = r.tensor("x", {kSource, kWidth}, as_bf16(randn(kSource * kWidth, 1)), c.x),
                    .map = r.ints("map", {9, 3}, kMap),
                    .y = r.tensor("y", {kRows, kWidth}, {}, c.y)};
  if (c.with_map_row) args.map_row = r.ints("map_row", {kRows}, kMapRow);
  if (c.count >= 0) args.count_of = r.ints("count", {2}, {-5, c.count});
  if (c.with_add) args.add = r.tensor("add", {kRows, kWidth}, as_bf16(randn(kRows * kWidth, 2)), c.add);
  ops::sum_rows(r.program(), Stream::compute, args);
  r.run();
  return r.get(args.y);
}

/// FP32 sums in the order that the contract states.
std::vector<float> loop(const Case& c) {
  const auto x = as_bf16(randn(kSource * kWidth, 1)), add = as_bf16(randn(kRows * kWidth, 2));
  std::vector<float> y;
  for (int64_t i = 0; i < kRows; ++i)
    for (int64_t j = 0; j < kWidth; ++j) {
      float sum = c.with_add ? add[static_cast<size_t>(i * kWidth + j)] : 0;
      const int64_t m = c.with_map_row ? kMapRow[static_cast<size_t>(i)] : i;
      for (int64_t k = 0; k < 3; ++k) {
        const int32_t row = kMap[static_cast<size_t>(m * 3 + k)];
        if (row >= 0) sum += x[static_cast<size_t>(row * kWidth + j)];
      }
      y.push_back(sum);
    }
  return y;
}

TEST(SumRows, AddsEntriesInOrderAndLeavesRowsAfterTheCountAlone) {
  for (const int num_threads : {1, 2})
    for (const bool with_add : {true, false})
      for (const bool with_map_row : {true, false})
        for (const int32_t count : {-1, 0, 4, 7}) {
          const Case c{
              .with_add = with_add, .with_map_row = with_map_row, .count = count, .num_threads = num_threads};
          const auto y = run(c), expected = loop(c);
          const size_t used = count < 0 ? y.size() : static_cast<size_t>(count * kWidth);
          for (size_t i = 0; i < y.size(); ++i) {
            if (i < used)
              EXPECT_EQ(y[i], expected[i]) << i;
            else
              EXPECT_TRUE(std::isnan(y[i])) << i;
          }
        }
}

TEST(SumRows, Bf16RoundsOnce) {
  const auto exact = loop({});
  for (const DType x : {DType::f32, DType::bf16})
    for (const DType add : {DType::f32, DType::bf16}) {
      EXPECT_EQ(run({.x = x, .add = add}), exact);
      EXPECT_EQ(run({.x = x, .add = add, .y = DType::bf16}), as_bf16(exact));
    }
}

TEST(Rows, CostCountsExpectedRows) {
  OpRunner r;
  const Handle x = r.tensor("x", {9, 8}, {}, DType::bf16), y = r.tensor("y", {7, 8}, {}, DType::bf16),
               z = r.tensor("z", {7, 8});
  const Handle map = r.ints("map", {7}), entries = r.ints("entries", {7, 2});
  ops::gather_rows(r.program(), Stream::compute, {.x = x, .map = map, .y = y, .expected_rows = 5});
  ops::sum_rows(r.program(), Stream::compute,
                {.x = x, .map = entries, .add = y, .y = z, .expected_rows = 12});
  ops::sum_rows(r.program(), Stream::compute, {.x = x, .map = entries, .y = z, .expected_rows = 3});
  const auto& nodes = r.program().nodes();
  EXPECT_EQ(nodes[0].cost.bytes, 5 * (8 * 2 + 8 * 2 + 4));
  EXPECT_EQ(nodes[1].cost.bytes, 12 * 8 * 2 + 7 * (8 * 2 + 8 * 4 + 2 * 4));
  EXPECT_EQ(nodes[1].cost.operations, 12 * 8);
  EXPECT_EQ(nodes[2].cost.bytes, 3 * 8 * 2 + 3 * (8 * 4 + 2 * 4));
}

}  // namespace
}  // namespace moesaic::test
