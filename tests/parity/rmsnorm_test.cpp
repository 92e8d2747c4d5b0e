#include "ops/rmsnorm/rmsnorm.h"

#include "support/parity.h"

namespace moesaic::test {
namespace {

// FP32 sums in another order differ by some 1e-7 (over many rows 1e-6); in BF16 that flips one rounding in ten thousand.
// Among few elements one flip, of a number near 1 by 2^-7, is allowed.
Bounds bounds(int64_t count) {
  return {.bf16 = 2e-4 + 8e-3 / std::sqrt(static_cast<double>(count)), .f32 = 5e-6};
}

struct Case {
  int64_t rows = 5, width = 128;
  DType type = DType::bf16, gain = DType::bf16;
  bool residual = true, sum = true, rstd = true;
  bool over_residual = false;  // the sum takes the residual's place
  bool bias = false;           // LayerNorm
};

/// Rows whose mean is not small beside their deviation.
std::vector<float> off_centre(int64_t count, uint64_t seed) {
  std::vector<float> x = fresh_randn(count, seed);
  for (float& value : x) value += 2;
  return x;
}

void expect_forward(const Case& k) {
  SCOPED_TRACE(fmt::format(
      "{} rows of {}, {} with gains {}, residual {}, sum {}, rstd {}, over residual {}, bias {}", k.rows,
      k.width, name_of(k.type), name_of(k.gain), k.residual, k.sum, k.rstd, k.over_residual, k.bias));
  expect_parity(bounds(k.rows * k.width), [&](OpRunner& r) -> Outputs {
    const Shape shape{k.rows, k.width};
    const int64_t count = shape.numel();
    ops::RmsNormForward args{.x = r.tensor("x", shape, off_centre(count, 1), k.type),
                             .gain = r.tensor("gain", {k.width}, fresh_randn(k.width, 2), k.gain),
                             .y = r.tensor("y", shape, {}, k.type),
                             .eps = 1e-3f};
    if (k.residual) args.residual = r.tensor("residual", shape, fresh_randn(count, 3), k.type);
    if (k.sum) args.sum = k.over_residual ? args.residual : r.tensor("sum", shape, {}, k.type);
    if (k.rstd) args.rstd = r.tensor("rstd", {k.rows});
    if (k.bias) args.bias = r.tensor("bias", {k.width}, fresh_randn(k.width, 4), k.gain);
    ops::rmsnorm_forward(r.program(), Stream::compute, args);
    Outputs outputs{args.y};
    if (k.sum) outputs.push_back(args.sum);
    if (k.rstd) outputs.push_back(args.rstd);
    return outputs;
  });
}

void expect_forward_at_every_width(bool bias) {
  for (const int64_t width : {1, 7, 64, 1000, 1024, 1032, 2048, 3004, 4096, 4104, 8192, 8200, 9001})
    for (const DType type : {DType::f32, DType::bf16})
      for (const DType gain : {DType::f32, DType::bf16})
        expect_forward(
            {.rows = width < 100 ? 301 : 5, .width = width, .type = type, .gain = gain, .bias = bias});
}

TEST(RmsNormParity, ForwardAtEveryWidth) {
  expect_forward_at_every_width(false);
}
TEST(LayerNormParity, ForwardAtEveryWidth) {
  expect_forward_at_every_width(true);
}

void expect_forward_without_the_optional_tensors(Case k) {
  for (const int64_t width : {7, 256, 8200})
    for (const DType type : {DType::f32, DType::bf16}) {
      k.width = width, k.type = type;
      Case alone = k, sum_only = k, in_place = k;
      alone.residual = alone.sum = alone.rstd = false;
      sum_only.residual = false;
      in_place.rstd = false, in_place.over_residual = true;
      for (const Case& each : {alone, sum_only, in_place}) expect_forward(each);
    }
}

TEST(RmsNormParity, ForwardWithoutTheOptionalTensors) {
  expect_forward_without_the_optional_tensors({});
}
TEST(LayerNormParity, ForwardWithoutTheOptionalTensors) {
  expect_forward_without_the_optional_tensors({.bias = true});
}

struct BackwardCase {
  int64_t rows = 5, width = 128;
  DType type = DType::bf16, gain = DType::bf16;
  bool rstd = true, add = true;
  enum { apart, over_dy, over_add } where = apart;
  bool bias = false;  // LayerNorm
};

void expect_backward(const BackwardCase& k) {
  SCOPED_TRACE(fmt::format("{} rows of {}, {} with gains {}, rstd {}, add {}, where {}, bias {}", k.rows,
                           k.width, name_of(k.type), name_of(k.gain), k.rstd, k.add,
                           static_cast<int>(k.where), k.bias));
  expect_parity(bounds(k.rows * k.width), [&](OpRunner& r) -> Outputs {
    const Shape shape{k.rows, k.width};
    const int64_t count = shape.numel();
    ops::RmsNormBackward args{.dy = r.tensor("dy", shape, fresh_randn(count, 1), k.type),
                              .x = r.tensor("x", shape, off_centre(count, 2), k.type),
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
    Outputs outputs{args.dx, args.dgain};
    if (k.bias) outputs.push_back(args.d_bias = r.tensor("d_bias", {k.width}, fresh_randn(k.width, 7)));
    ops::rmsnorm_backward(r.program(), Stream::compute, args);
    return outputs;
  });
}

void expect_backward_at_every_width(bool bias) {
  for (const int64_t width : {1, 7, 64, 1000, 1024, 1032, 2048, 3004, 4096, 4104, 8192, 8200, 9001})
    for (const DType type : {DType::f32, DType::bf16})
      for (const DType gain : {DType::f32, DType::bf16})
        expect_backward({.rows = 5, .width = width, .type = type, .gain = gain, .bias = bias});
}

TEST(RmsNormParity, BackwardAtEveryWidth) {
  expect_backward_at_every_width(false);
}
TEST(LayerNormParity, BackwardAtEveryWidth) {
  expect_backward_at_every_width(true);
}

void expect_backward_of_more_rows_than_blocks(bool bias) {
  // 1056, 528, 264 and 132 blocks, two rows of BF16 at a time (of LayerNorm one).
  for (const DType type : {DType::f32, DType::bf16}) {
    for (const int64_t rows : {1, 2, 1055, 1057, 2113, 4500})
      expect_backward({.rows = rows, .width = 64, .type = type, .bias = bias});
    expect_backward({.rows = 1201, .width = 1104, .type = type, .bias = bias});
    expect_backward({.rows = 603, .width = 2056, .type = type, .bias = bias});
    expect_backward({.rows = 301, .width = 4104, .type = type, .bias = bias});
    expect_backward({.rows = 301, .width = 8200, .type = type, .bias = bias});
    expect_backward({.rows = 2500, .width = 33, .type = type, .bias = bias});
  }
}

TEST(RmsNormParity, BackwardOfMoreRowsThanBlocks) {
  expect_backward_of_more_rows_than_blocks(false);
}
TEST(LayerNormParity, BackwardOfMoreRowsThanBlocks) {
  expect_backward_of_more_rows_than_blocks(true);
}

void expect_backward_in_place_and_without_the_optional_tensors(BackwardCase k) {
  for (const int64_t width : {7, 256, 8200})
    for (const DType type : {DType::f32, DType::bf16})
      for (const bool rstd : {true, false}) {
        k.rows = 65, k.width = width, k.type = type, k.rstd = rstd;
        BackwardCase over_dy = k, over_add = k, without_add = k;
        over_dy.where = BackwardCase::over_dy;
        over_add.where = BackwardCase::over_add;
        without_add.add = false;
        for (const BackwardCase& each : {over_dy, over_add, without_add}) expect_backward(each);
      }
}

TEST(RmsNormParity, BackwardInPlaceAndWithoutTheOptionalTensors) {
  expect_backward_in_place_and_without_the_optional_tensors({});
}
TEST(LayerNormParity, BackwardInPlaceAndWithoutTheOptionalTensors) {
  expect_backward_in_place_and_without_the_optional_tensors({.bias = true});
}

}  // namespace
}  // namespace moesaic::test
