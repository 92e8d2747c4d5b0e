#include "ops/matmul/matmul.h"

#include "support/parity.h"

namespace moesaic::test {
namespace {

struct Case {
  int64_t m, n, k;
  bool trans_a = false, trans_b = false, accumulate = false;
  DType a = DType::bf16, b = DType::bf16, c = DType::bf16;

  std::string str() const {
    return fmt::format("{} x {} x {}, trans {} {}, accumulate {}, {} {} {}", m, n, k, trans_a, trans_b,
                       accumulate, name_of(a), name_of(b), name_of(c));
  }
};

/// BF16 outputs: the FP32 results differ in the last bits, so a few numbers round to the other neighbour (2^-8 apart), and few
/// among many are little; one among a handful is all. FP32 outputs: products in full FP32 differ by the order of sums (TF32
/// would be off by 3e-4); tensor cores cut what they add to 24 bits, 16 products at a time. Adding to BF16, cuBLASLt rounds the
/// product once more.
Bounds bounds_of(const Case& c) {
  return {.bf16 = c.accumulate || c.m * c.n <= 1000 ? 4e-3 : 1e-3,
          .f32 = c.a == DType::f32 && c.b == DType::f32 ? 1e-5 : 2e-5};
}

void expect_product(const Case& c) {
  SCOPED_TRACE(c.str());
  expect_parity(bounds_of(c), [&](OpRunner& r) -> Outputs {
    const Shape a_shape = c.trans_a ? Shape{c.k, c.m} : Shape{c.m, c.k},
                b_shape = c.trans_b ? Shape{c.n, c.k} : Shape{c.k, c.n};
    const Handle a = r.tensor("a", a_shape, fresh_randn(c.m * c.k, 1), c.a),
                 b = r.tensor("b", b_shape, fresh_randn(c.k * c.n, 2), c.b);
    const Handle y =
        r.tensor("c", {c.m, c.n}, c.accumulate ? fresh_randn(c.m * c.n, 3) : std::vector<float>{}, c.c);
    ops::matmul(
        r.program(), Stream::compute,
        {.a = a, .b = b, .c = y, .trans_a = c.trans_a, .trans_b = c.trans_b, .accumulate = c.accumulate});
    return {y};
  });
}

/// Every combination of types, transposes and accumulation.
template <class F>
void each_combination(Case c, const F& f) {
  for (c.trans_a = false;; c.trans_a = true) {
    for (c.trans_b = false;; c.trans_b = true) {
      for (c.accumulate = false;; c.accumulate = true) {
        for (c.a = DType::f32;; c.a = DType::bf16) {
          for (c.b = DType::f32;; c.b = DType::bf16) {
            for (c.c = DType::f32;; c.c = DType::bf16) {
              f(c);
              if (c.c == DType::bf16) break;
            }
            if (c.b == DType::bf16) break;
          }
          if (c.a == DType::bf16) break;
        }
        if (c.accumulate) break;
      }
      if (c.trans_b) break;
    }
    if (c.trans_a) break;
  }
}

TEST(MatmulParity, EveryCombinationAtOddSizes) {
  each_combination({.m = 37, .n = 29, .k = 53}, expect_product);
}

TEST(MatmulParity, EveryCombinationAtTensorCoreSizes) {
  each_combination({.m = 136, .n = 72, .k = 264}, expect_product);
}

TEST(MatmulParity, SmallestSizes) {
  for (const DType a : {DType::f32, DType::bf16})
    for (const DType b : {DType::f32, DType::bf16})
      for (const DType c : {DType::f32, DType::bf16}) {
        expect_product({.m = 1, .n = 1, .k = 1, .a = a, .b = b, .c = c});
        expect_product({.m = 1, .n = 5, .k = 3, .trans_b = true, .accumulate = true, .a = a, .b = b, .c = c});
        expect_product({.m = 7, .n = 1, .k = 2, .trans_a = true, .a = a, .b = b, .c = c});
      }
}

TEST(MatmulParity, LongSums) {
  expect_product({.m = 300, .n = 520, .k = 4096, .trans_b = true});
  expect_product({.m = 300, .n = 520, .k = 4096});
  expect_product({.m = 300, .n = 520, .k = 4096, .trans_a = true, .accumulate = true, .c = DType::f32});
  expect_product(
      {.m = 300, .n = 520, .k = 4096, .trans_b = true, .a = DType::f32, .b = DType::f32, .c = DType::f32});
}

/// Few outputs of long sums: the library cuts the sum into parts.
TEST(MatmulParity, SumsThatAreCutIntoParts) {
  for (const DType c : {DType::f32, DType::bf16})
    expect_product({.m = 16, .n = 64, .k = 20000, .trans_a = true, .accumulate = true, .c = c});
}

/// The router's products: logits, the gradient of its input (on top of another), and of its weights.
TEST(MatmulParity, Router) {
  for (const int64_t experts : {8, 60}) {
    expect_product({.m = 1000, .n = experts, .k = 1024, .trans_b = true, .c = DType::f32});
    expect_product({.m = 1000, .n = 1024, .k = experts, .accumulate = true, .a = DType::f32});
    expect_product({.m = experts,
                    .n = 1024,
                    .k = 1000,
                    .trans_a = true,
                    .accumulate = true,
                    .a = DType::f32,
                    .c = DType::f32});
  }
}

/// An FP32 operand counts with all its bits: with 8 of them these products would be off by 4e-2, with 16 by 1.5e-4.
TEST(MatmulParity, MixedProductsKeepFp32Bits) {
  const int64_t m = 64, n = 96, k = 128;
  for (const DType out : {DType::f32, DType::bf16})
    expect_parity({.bf16 = 1e-3, .f32 = 5e-5}, [&](OpRunner& r) -> Outputs {
      // a = 1 + a little, and the ones count for nothing, since b's columns sum up to zero.
      std::vector<float> a = fresh_randn(m * k, 1, 3e-2f), b = fresh_randn(k * n, 2);
      for (float& x : a) x += 1;
      for (int64_t row = 0; row < k / 2; ++row)
        for (int64_t col = 0; col < n; ++col)
          b[static_cast<size_t>((row + k / 2) * n + col)] = -b[static_cast<size_t>(row * n + col)];
      const Handle ah = r.tensor("a", {m, k}, a), bh = r.tensor("b", {k, n}, b, DType::bf16),
                   y = r.tensor("c", {m, n}, {}, out);
      ops::matmul(r.program(), Stream::compute, {.a = ah, .b = bh, .c = y});
      return {y};
    });
}

}  // namespace
}  // namespace moesaic::test
