#include "ops/rmsnorm/rmsnorm.h"

#include "support/parity.h"

namespace moesaic::test {
namespace {

// FP32 sums in another order differ by some 1e-7 (over many rows 1e-6); in BF16 that flips one rounding in ten thousand.
constexpr Bounds kBounds{.bf16 = 2e-4, .f32 = 5e-6};

struct Case {
  int64_t rows = 5, width = 128;
  DType type = DType::bf16, gain = DType::bf16;
  bool residual = true, sum = true, rstd = true;
  bool over_residual = false;  // the sum takes the residual's place
};

void expect_forward(const Case& k) {
  SCOPED_TRACE(fmt::format("{} rows of {}, {} with gains {}, residual {}, sum {}, rstd {}, over residual {}",
                           k.rows, k.width, name_of(k.type), name_of(k.gain), k.residual, k.sum, k.rstd,
                           k.over_residual));
  expect_parity(kBounds, [&](OpRunner& r) -> Outputs {
    const Shape shape{k.rows, k.width};
    const int64_t count = shape.numel();
    ops::RmsNormForward args{.x = r.tensor("x", shape, fresh_randn(count, 1), k.type),
                             .gain = r.tensor("gain", {k.width}, fresh_randn(k.width, 2), k.gain),
                             .y = r.tensor("y", shape, {}, k.type),
                             .eps = 1e-3f};
    if (k.residual) args.residual = r.tensor("residual", shape, fresh_randn(count, 3), k.type);
    if (k.sum) args.sum = k.over_residual ? args.residual : r.tensor("sum", shape, {}, k.type);
    if (k.rstd) args.rstd = r.tensor("rstd", {k.rows});
    ops::rmsnorm_forward(r.program(), Stream::compute, args);
    Outputs outputs{args.y};
    if (k.sum) outputs.push_back(args.sum);
    if (k.rstd) outputs.push_back(args.rstd);
    return outputs;
  });
}

TEST(RmsNormParity, ForwardAtEveryWidth) {
  for (const int64_t width : {1, 7, 64, 1000, 1024, 1032, 2048, 3004, 4096, 4104, 8192, 8200, 9001})
    for (const DType type : {DType::f32, DType::bf16})
      for (const DType gain : {DType::f32, DType::bf16})
        expect_forward({.rows = width < 100 ? 301 : 5, .width = width, .type = type, .gain = gain});
}

TEST(RmsNormParity, ForwardWithoutTheOptionalTensors) {
  for (const int64_t width : {7, 256, 8200})
    for (const DType type : {DType::f32, DType::bf16}) {
      expect_forward({.width = width, .type = type, .residual = false, .sum = false, .rstd = false});
      expect_forward({.width = width, .type = type, .residual = false});
      expect_forward({.width = width, .type = type, .rstd = false, .over_residual = true});
    }
}

struct BackwardCase {
  int64_t rows = 5, width = 128;
  DType type = DType::bf16, gain = DType::bf16;
  bool rstd = true, add = true;
  enum { apart, over_dy, over_add } where = apart;
};

void expect_backward(const BackwardCase& k) {
  SCOPED_TRACE(fmt::format("{} rows of {}, {} with gains {}, rstd {}, add {}, where {}", k.rows, k.width,
                           name_of(k.type), name_of(k.gain), k.rstd, k.add, static_cast<int>(k.where)));
  expect_parity(kBounds, [&](OpRunner& r) -> Outputs {
    const Shape shape{k.rows, k.width};
    const int64_t count = shape.numel();
    ops::RmsNormBackward args{.dy = r.tensor("dy", shape, fresh_randn(count, 1), k.type),
                              .x = r.tensor("x", shape, fresh_randn(count, 2), k.type),
                              .gain = r.tensor("gain", {k.width}, fresh_randn(k.width, 3), k.gain),
                              .dgain = r.tensor("dgain", {k.width}, fresh_randn(k.width, 4)),
                              .eps = 1e-3f};
    if (k.rstd) {
      // Any positive numbers: the op takes them as given.
      std::vector<float> rstd = fresh_randn(k.rows, 5);
      for (float& x : rstd) x = 0.5f + std::abs(x);
      args.rstd = r.tensor("rstd", {k.rows}, rstd);
    }
    if (k.add) args.add = r.tensor("add", shape, fresh_randn(count, 6), k.type);
    args.dx = k.where == BackwardCase::over_dy    ? args.dy
              : k.where == BackwardCase::over_add ? args.add
                                                  : r.tensor("dx", shape, {}, k.type);
    ops::rmsnorm_backward(r.program(), Stream::compute, args);
    return {args.dx, args.dgain};
  });
}

TEST(RmsNormParity, BackwardAtEveryWidth) {
  for (const int64_t width : {1, 7, 64, 1000, 1024, 1032, 2048, 3004, 4096, 4104, 8192, 8200, 9001})
    for (const DType type : {DType::f32, DType::bf16})
      for (const DType gain : {DType::f32, DType::bf16})
        expect_backward({.rows = 5, .width = width, .type = type, .gain = gain});
}

TEST(RmsNormParity, BackwardOfMoreRowsThanBlocks) {
  // 1056, 528, 264 and 132 blocks, two rows of BF16 at a time.
  for (const DType type : {DType::f32, DType::bf16}) {
    for (const int64_t rows : {1, 2, 1055, 1057, 2113, 4500})
      expect_backward({.rows = rows, .width = 64, .type = type});
    expect_backward({.rows = 1201, .width = 1104, .type = type});
    expect_backward({.rows = 603, .width = 2056, .type = type});
    expect_backward({.rows = 301, .width = 4104, .type = type});
    expect_backward({.rows = 301, .width = 8200, .type = type});
    expect_backward({.rows = 2500, .width = 33, .type = type});
  }
}

TEST(RmsNormParity, BackwardInPlaceAndWithoutTheOptionalTensors) {
  for (const int64_t width : {7, 256, 8200})
    for (const DType type : {DType::f32, DType::bf16})
      for (const bool rstd : {true, false}) {
        expect_backward(
            {.rows = 65, .width = width, .type = type, .rstd = rstd, .where = BackwardCase::over_dy});
        expect_backward(
            {.rows = 65, .width = width, .type = type, .rstd = rstd, .where = BackwardCase::over_add});
        expect_backward({.rows = 65, .width = width, .type = type, .rstd = rstd, .add = false});
      }
}

}  // namespace
}  // namespace moesaic::test
