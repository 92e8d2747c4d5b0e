// LayerNorm, biases and their gradients beyond 2^31 and 2^32 elements. Rows that are not sampled are zero, and so is what they add
// to the gradients of parameters.
#include "ops/bias/bias.h"
#include "ops/rmsnorm/rmsnorm.h"
#include "support/large_runner.h"

namespace moesaic::test {
namespace {

using Rows = std::vector<float>;

/// The sampled rows one after another.
Rows samples(uint64_t seed) {
  Rows all;
  for (int64_t row : sampled_rows()) {
    const auto values = some_row(row, kWide, seed);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}
Handle large(LargeRunner& r, const char* name, uint64_t seed) {
  const Handle h = r.tensor(name, {kRows, kWide}, DType::bf16);
  for (int64_t row : sampled_rows()) r.store_row(h, row, some_row(row, kWide, seed));
  return h;
}
Handle small(OpRunner& r, const char* name, const Rows& values) {
  return r.tensor(name, {static_cast<int64_t>(sampled_rows().size()), kWide}, values, DType::bf16);
}
Rows rows_of(LargeRunner& r, Handle h) {
  Rows all;
  for (int64_t row : sampled_rows()) {
    const auto values = r.row(h, row);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}
/// A vector of kWide numbers on either runner.
Handle vector(LargeRunner& r, const char* name, DType type, uint64_t seed) {
  const Handle h = r.tensor(name, {kWide}, type);
  const auto values = fresh_randn(kWide, seed);
  if (type == DType::f32)
    r.store(h, 0, values);
  else
    r.store(h, 0, std::vector<bf16>(values.begin(), values.end()));
  return h;
}
Handle vector(OpRunner& r, const char* name, DType type, uint64_t seed) {
  return r.tensor(name, {kWide}, fresh_randn(kWide, seed), type);
}

// As in rmsnorm_test.cpp.
constexpr double kBf16 = 2e-4, kF32 = 5e-6;

TEST(LargeTensors, LayerNormForward) {
  NEEDS_GPU_MEMORY(25);
  const auto record = [](auto& r, Handle x, Handle residual, Handle y) {
    ops::rmsnorm_forward(r.program(), Stream::compute,
                         {.x = x,
                          .residual = residual,
                          .gain = vector(r, "gain", DType::bf16, 3),
                          .sum = residual,
                          .y = y,
                          .bias = vector(r, "bias", DType::bf16, 4)});
  };
  LargeRunner gpu;
  OpRunner cpu;
  const Handle y = gpu.tensor("y", {kRows, kWide}, DType::bf16), residual = large(gpu, "residual", 2);
  const Handle small_y = small(cpu, "y", {}), small_residual = small(cpu, "residual", samples(2));
  record(gpu, large(gpu, "x", 1), residual, y);
  record(cpu, small(cpu, "x", samples(1)), small_residual, small_y);
  gpu.run(), cpu.run();
  EXPECT_EQ(rows_of(gpu, residual), cpu.get(small_residual));
  EXPECT_LT(relative_error(rows_of(gpu, y), cpu.get(small_y)), kBf16);
}

TEST(LargeTensors, LayerNormBackward) {
  NEEDS_GPU_MEMORY(25);
  struct Grads {
    Handle dx, dgain, d_bias;
  };
  const auto record = [](auto& r, Handle dy, Handle x, Handle dx) {
    const Grads grads{dx, vector(r, "dgain", DType::f32, 5), vector(r, "d_bias", DType::f32, 6)};
    ops::rmsnorm_backward(r.program(), Stream::compute,
                          {.dy = dy,
                           .x = x,
                           .gain = vector(r, "gain", DType::bf16, 3),
                           .dx = dx,
                           .dgain = grads.dgain,
                           .d_bias = grads.d_bias});
    return grads;
  };
  LargeRunner gpu;
  OpRunner cpu;
  const Grads found =
      record(gpu, large(gpu, "dy", 1), large(gpu, "x", 2), gpu.tensor("dx", {kRows, kWide}, DType::bf16));
  const Grads expected =
      record(cpu, small(cpu, "dy", samples(1)), small(cpu, "x", samples(2)), small(cpu, "dx", {}));
  gpu.run(), cpu.run();
  EXPECT_LT(relative_error(rows_of(gpu, found.dx), cpu.get(expected.dx)), kBf16);
  EXPECT_LT(relative_error(gpu.fetch<float>(found.dgain, 0, kWide), cpu.get(expected.dgain)), kF32);
  EXPECT_LT(relative_error(gpu.fetch<float>(found.d_bias, 0, kWide), cpu.get(expected.d_bias)), kF32);
}

TEST(LargeTensors, Bias) {
  NEEDS_GPU_MEMORY(17);
  const auto record = [](auto& r, Handle x, Handle dy) {
    ops::add_bias(r.program(), Stream::compute, x, vector(r, "bias", DType::bf16, 3));
    const Handle d_bias = vector(r, "d_bias", DType::f32, 4);
    ops::bias_backward(r.program(), Stream::compute, dy, d_bias);
    return d_bias;
  };
  LargeRunner gpu;
  OpRunner cpu;
  const Handle x = large(gpu, "x", 1), small_x = small(cpu, "x", samples(1));
  const Handle d_bias = record(gpu, x, large(gpu, "dy", 2)),
               small_d_bias = record(cpu, small_x, small(cpu, "dy", samples(2)));
  gpu.run(), cpu.run();
  EXPECT_EQ(rows_of(gpu, x), cpu.get(small_x));
  EXPECT_LT(relative_error(gpu.fetch<float>(d_bias, 0, kWide), cpu.get(small_d_bias)), kF32);
}

}  // namespace
}  // namespace moesaic::test
