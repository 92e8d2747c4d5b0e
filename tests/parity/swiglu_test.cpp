#include "ops/swiglu/swiglu.h"

#include <algorithm>
#include <numeric>

#include "support/parity.h"

namespace moesaic::test {
namespace {

// The exponential of the special-function unit is right to some 1e-7 near zero and 1e-6 at the ends, where SiLU is small.
constexpr Bounds kBounds{.bf16 = 2e-4, .f32 = 2e-6};

struct Case {
  int64_t rows = 67, width = 64;
  int32_t used = 50;  // rows from here on must stay as they were; -1: no offsets
  DType type = DType::bf16;
  bool weighted = true, with_y = true;
  float scale = 2;

  std::string str() const {
    return fmt::format("{} of {} rows of {}, {}, weighted {}, y {}", used, rows, width, name_of(type),
                       weighted, with_y);
  }
};

struct Inputs {
  Handle h, weights, slots, offsets;
};

Inputs inputs(OpRunner& r, const Case& k) {
  Inputs in{.h = r.tensor("h", {k.rows, 2 * k.width}, fresh_randn(k.rows * 2 * k.width, 1, k.scale), k.type)};
  if (k.weighted) {
    std::vector<int32_t> slots(static_cast<size_t>(3 * k.rows));
    std::iota(slots.begin(), slots.end(), 0);
    std::shuffle(slots.begin(), slots.end(), std::mt19937_64(test_seed()));
    slots.resize(static_cast<size_t>(k.rows));
    in.weights = r.tensor("weights", {k.rows, 3}, fresh_randn(3 * k.rows, 2));
    in.slots = r.ints("slots", {k.rows}, slots);
  }
  if (k.used >= 0) in.offsets = r.ints("offsets", {3}, {0, k.used / 2, k.used});
  return in;
}
/// An output whose unused rows must keep what is in them.
Handle output(OpRunner& r, const char* name, const Case& k, int64_t width, uint64_t seed) {
  return r.tensor(name, {k.rows, width}, fresh_randn(k.rows * width, seed), k.type);
}

void expect_forward(const Case& k) {
  SCOPED_TRACE("forward, " + k.str());
  expect_parity(kBounds, [&](OpRunner& r) -> Outputs {
    const Inputs in = inputs(r, k);
    const Handle y = output(r, "y", k, k.width, 3);
    ops::swiglu_forward(r.program(), Stream::compute,
                        {.h = in.h, .weights = in.weights, .slots = in.slots, .offsets = in.offsets, .y = y});
    return {y};
  });
}

void expect_backward(const Case& k) {
  SCOPED_TRACE("backward, " + k.str());
  expect_parity(kBounds, [&](OpRunner& r) -> Outputs {
    const Inputs in = inputs(r, k);
    ops::SwigluBackward args{
        .dy = r.tensor("dy", {k.rows, k.width}, fresh_randn(k.rows * k.width, 4), k.type),
        .h = in.h,
        .weights = in.weights,
        .slots = in.slots,
        .offsets = in.offsets,
        .dh = output(r, "dh", k, 2 * k.width, 5)};
    Outputs outputs{args.dh};
    if (k.weighted) outputs.push_back(args.d_weights = r.tensor("d_weights", {k.rows, 3}));
    if (k.with_y) outputs.push_back(args.y = output(r, "y", k, k.width, 6));
    ops::swiglu_backward(r.program(), Stream::compute, args);
    return outputs;
  });
}

void expect_both(const Case& k) {
  expect_forward(k);
  expect_backward(k);
}

TEST(SwigluParity, EveryWidth) {
  for (const int64_t width : {1, 7, 8, 64, 132, 520, 1000, 1408, 3001})
    for (const DType type : {DType::f32, DType::bf16})
      for (const bool weighted : {true, false})
        expect_both({.width = width, .type = type, .weighted = weighted});
}

TEST(SwigluParity, RowCounts) {
  for (const int32_t used : {-1, 0, 1, 66, 67})
    for (const bool weighted : {true, false})
      for (const DType type : {DType::f32, DType::bf16})
        expect_both({.used = used, .type = type, .weighted = weighted, .with_y = false});
  expect_both({.rows = 9000, .width = 8, .used = 8999});  // more rows than blocks
}

TEST(SwigluParity, LargeValues) {
  for (const DType type : {DType::f32, DType::bf16}) expect_both({.type = type, .scale = 100});
}

}  // namespace
}  // namespace moesaic::test
