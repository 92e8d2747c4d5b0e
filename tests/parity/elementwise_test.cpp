#include "ops/elementwise/elementwise.h"

#include "support/parity.h"

namespace moesaic::test {
namespace {

TEST(ElementwiseParity, Add) {
  for (const int64_t count : {1, 3, 4, 1023, 100000})
    for (const DType a : {DType::f32, DType::bf16})
      for (const DType b : {DType::f32, DType::bf16})
        for (const DType y : {DType::f32, DType::bf16})
          expect_parity({.bf16 = 1e-9, .f32 = 1e-9}, [&](OpRunner& r) -> Outputs {
            const Handle ah = r.tensor("a", {count}, fresh_randn(count, 1), a),
                         bh = r.tensor("b", {count}, fresh_randn(count, 2), b),
                         yh = r.tensor("y", {count}, {}, y);
            ops::add(r.program(), Stream::compute, ah, bh, yh);
            return {yh};
          });
}

TEST(ElementwiseParity, CopyConvertsAndZeroClears) {
  for (const int64_t count : {1, 3, 4, 1023, 100000})
    for (const DType x : {DType::f32, DType::bf16})
      for (const DType y : {DType::f32, DType::bf16})
        expect_parity({.bf16 = 1e-9, .f32 = 1e-9}, [&](OpRunner& r) -> Outputs {
          const Handle xh = r.tensor("x", {count}, fresh_randn(count, 1), x),
                       yh = r.tensor("y", {count}, {}, y), z = r.tensor("z", {count}, {}, y);
          ops::copy(r.program(), Stream::copy, xh, yh);
          ops::zero(r.program(), Stream::compute, z);
          return {yh, z};
        });
}

}  // namespace
}  // namespace moesaic::test
