#include "ops/rows/rows.h"

#include "support/parity.h"

namespace moesaic::test {
namespace {

// Rows are copied, and added in the same order in FP32.
constexpr Bounds kBounds{.bf16 = 1e-9, .f32 = 1e-9};

/// `count` numbers from [low, high).
std::vector<int32_t> uniform_ints(int64_t count, int64_t low, int64_t high, uint64_t seed) {
  std::mt19937_64 draw(test_seed() + seed);
  std::vector<int32_t> v(static_cast<size_t>(count));
  for (int32_t& x : v)
    x = static_cast<int32_t>(low + static_cast<int64_t>(draw() % static_cast<uint64_t>(high - low)));
  return v;
}

void expect_gather(int64_t rows, int64_t width, DType type, int32_t count) {
  SCOPED_TRACE(fmt::format("{} of {} rows of {} {}", count, rows, width, name_of(type)));
  expect_parity(kBounds, [&](OpRunner& r) -> Outputs {
    const int64_t source = rows + 9;
    auto map = uniform_ints(rows, 0, source, 1);
    // What stands behind the count is anything.
    for (size_t i = static_cast<size_t>(std::max(count, 0)); count >= 0 && i < map.size(); ++i)
      map[i] = 0x7fffffff;
    ops::GatherRows args{.x = r.tensor("x", {source, width}, fresh_randn(source * width, 2), type),
                         .map = r.ints("map", {rows}, map),
                         .y = r.tensor("y", {rows, width}, fresh_randn(rows * width, 3), type)};
    if (count >= 0) args.count_of = r.ints("offsets", {3}, {0, 1 << 30, count});
    ops::gather_rows(r.program(), Stream::compute, args);
    return {args.y};
  });
}

TEST(GatherRowsParity, EveryWidth) {
  for (const int64_t width : {1, 2, 3, 4, 6, 8, 64, 516, 1000, 1024, 1032, 4096})
    for (const DType type : {DType::f32, DType::bf16}) expect_gather(131, width, type, 100);
}

TEST(GatherRowsParity, RowCounts) {
  for (const int32_t count : {-1, 0, 1, 130, 131})
    for (const DType type : {DType::f32, DType::bf16}) expect_gather(131, 72, type, count);
  expect_gather(40000, 16, DType::bf16, 39999);  // more pieces than warps
}

TEST(GatherRowsParity, RowsOfOtherTypes) {
  expect_parity(kBounds, [&](OpRunner& r) -> Outputs {
    const Handle x = r.ints("x", {50, 3}, uniform_ints(150, -1000, 1000, 1)), y = r.ints("y", {70, 3});
    ops::gather_rows(r.program(), Stream::compute,
                     {.x = x, .map = r.ints("map", {70}, uniform_ints(70, 0, 50, 2)), .y = y});
    return {y};
  });
}

struct SumCase {
  int64_t rows = 67, width = 64, num_entries = 3;
  int32_t count = 50;  // -1: all
  bool add = true, map_row = true;
  DType x = DType::bf16, add_type = DType::bf16, y = DType::bf16;
};

void expect_sum(const SumCase& k) {
  SCOPED_TRACE(fmt::format("{} of {} rows of {}, {} entries, {} + {} to {}, add {}, map_row {}", k.count,
                           k.rows, k.width, k.num_entries, name_of(k.x), name_of(k.add_type), name_of(k.y),
                           k.add, k.map_row));
  expect_parity(kBounds, [&](OpRunner& r) -> Outputs {
    const int64_t source = 90, map_rows = k.map_row ? 41 : k.rows;
    // A third of the entries is absent.
    ops::SumRows args{.x = r.tensor("x", {source, k.width}, fresh_randn(source * k.width, 1), k.x),
                      .map = r.ints("map", {map_rows, k.num_entries},
                                    [&] {
                                      auto map =
                                          uniform_ints(map_rows * k.num_entries, -source / 2, source, 2);
                                      for (int32_t& row : map) row = std::max(row, -1);
                                      return map;
                                    }()),
                      .y = r.tensor("y", {k.rows, k.width}, fresh_randn(k.rows * k.width, 3), k.y)};
    if (k.map_row) args.map_row = r.ints("map_row", {k.rows}, uniform_ints(k.rows, 0, map_rows, 4));
    if (k.count >= 0) args.count_of = r.ints("count", {2}, {-5, k.count});
    if (k.add) args.add = r.tensor("add", {k.rows, k.width}, fresh_randn(k.rows * k.width, 5), k.add_type);
    ops::sum_rows(r.program(), Stream::compute, args);
    return {args.y};
  });
}

TEST(SumRowsParity, EveryTypeAndOptionalTensor) {
  for (const DType x : {DType::f32, DType::bf16})
    for (const DType add_type : {DType::f32, DType::bf16})
      for (const DType y : {DType::f32, DType::bf16})
        for (const int64_t width : {11, 64, 1032}) {
          expect_sum({.width = width, .x = x, .add_type = add_type, .y = y});
          expect_sum({.width = width, .add = false, .map_row = false, .x = x, .y = y});
        }
}

TEST(SumRowsParity, EntriesAndCounts) {
  for (const int64_t num_entries : {1, 2, 4, 5, 8, 9, 64})
    for (const DType type : {DType::f32, DType::bf16})
      expect_sum({.num_entries = num_entries, .x = type, .add_type = type, .y = type});
  for (const int32_t count : {-1, 0, 1, 66, 67})
    for (const bool map_row : {true, false})
      for (const bool add : {true, false}) expect_sum({.count = count, .add = add, .map_row = map_row});
}

TEST(SumRowsParity, WithoutAnyEntryTheRowIsZeroOrWhatIsAdded) {
  for (const bool add : {true, false})
    expect_parity(kBounds, [&](OpRunner& r) -> Outputs {
      ops::SumRows args{.x = r.tensor("x", {4, 24}, fresh_randn(96, 1), DType::bf16),
                        .map = r.ints("map", {5, 2}, std::vector<int32_t>(10, -1)),
                        .y = r.tensor("y", {5, 24}, {}, DType::bf16)};
      if (add) args.add = r.tensor("add", {5, 24}, fresh_randn(120, 2), DType::bf16);
      ops::sum_rows(r.program(), Stream::compute, args);
      return {args.y};
    });
}

}  // namespace
}  // namespace moesaic::test
