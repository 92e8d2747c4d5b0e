#include "ops/bias/bias.h"

#include "support/parity.h"

namespace moesaic::test {
namespace {

void expect_add(int64_t rows, int64_t width, DType type, DType bias_type) {
  SCOPED_TRACE(fmt::format("{} rows of {}, {} and {}", rows, width, name_of(type), name_of(bias_type)));
  expect_parity({.bf16 = 1e-9, .f32 = 1e-9}, [&](OpRunner& r) -> Outputs {  // the same sum, the same rounding
    const Handle x = r.tensor("x", {rows, width}, fresh_randn(rows * width, 1), type);
    ops::add_bias(r.program(), Stream::compute, x,
                  r.tensor("bias", {width}, fresh_randn(width, 2), bias_type));
    return {x};
  });
}

void expect_backward(int64_t rows, int64_t width, DType type) {
  SCOPED_TRACE(fmt::format("{} rows of {}, {}", rows, width, name_of(type)));
  expect_parity({.f32 = 2e-6}, [&](OpRunner& r) -> Outputs {  // FP32 sums over rows in another order
    const Handle d_bias = r.tensor("d_bias", {width}, fresh_randn(width, 1));
    ops::bias_backward(r.program(), Stream::compute,
                       r.tensor("dy", {rows, width}, fresh_randn(rows * width, 2), type), d_bias);
    return {d_bias};
  });
}

// Less than a pack, odd, packs of FP32 but not of BF16, of both, more than a block across.
constexpr int64_t kWidths[] = {1, 7, 12, 256, 259, 1000, 5120, 8200, 9001};

TEST(BiasParity, Add) {
  for (const int64_t width : kWidths)
    for (const int64_t rows : {1, 5, 301})
      for (const DType type : {DType::f32, DType::bf16})
        for (const DType bias : {DType::f32, DType::bf16}) expect_add(rows, width, type, bias);
}

TEST(BiasParity, AddToMoreRowsThanBlocks) {
  // 2112 blocks of one column of packs, 4 rows at a time.
  for (const DType type : {DType::f32, DType::bf16})
    for (const int64_t rows : {2112 * 4 - 1, 2112 * 4 + 1, 20011}) expect_add(rows, 24, type, type);
}

TEST(BiasParity, Backward) {
  for (const int64_t width : kWidths)
    for (const int64_t rows : {1, 7, 9, 301})
      for (const DType type : {DType::f32, DType::bf16}) expect_backward(rows, width, type);
}

TEST(BiasParity, BackwardOfMoreRowsThanBlocks) {
  // 1056 blocks of 8 rows at a time.
  for (const DType type : {DType::f32, DType::bf16})
    for (const int64_t rows : {1056 * 8 - 1, 1056 * 8 + 1, 40009}) expect_backward(rows, 24, type);
}

}  // namespace
}  // namespace moesaic::test
