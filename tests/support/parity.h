#pragma once
// The same op on the CPU and on the GPU, with the same inputs: the CPU is the oracle.
//
//   expect_parity({.bf16 = 3e-3}, [&](OpRunner& r) -> Outputs {
//     const Handle x = r.tensor("x", {rows, width}, randn(rows * width, 1), DType::bf16);
//     const Handle y = r.tensor("y", {rows, width}, {}, DType::bf16);
//     ops::some_op(r.program(), Stream::compute, {...});
//     return {y};
//   });
//
// On a machine without a GPU the test is skipped. Inputs are drawn anew in each run of the program (MOESAIC_TEST_SEED fixes
// the draw, and a failure prints it).
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "support/op_runner.h"

namespace moesaic::test {

/// What each output may differ by, as relative_error (op_runner.h): the rounding of its type and the order of FP32 sums.
struct Bounds {
  double bf16 = 4e-3;  // one rounding is 2^-9 = 2e-3 at most
  double f32 = 1e-5;
};
using Outputs = std::vector<Handle>;

/// Added to the seeds of a test's inputs.
inline uint64_t test_seed() {
  static const uint64_t seed = [] {
    const char* given = std::getenv("MOESAIC_TEST_SEED");
    return given ? std::strtoull(given, nullptr, 10) : uint64_t{std::random_device{}()};
  }();
  return seed;
}
inline std::vector<float> fresh_randn(int64_t count, uint64_t seed, float scale = 1) {
  return randn(count, seed + test_seed(), scale);
}

/// Records the op on each device and compares every output; integers must be equal. Twice on the GPU: bit-equal.
inline void expect_parity(const Bounds& bounds, const std::function<Outputs(OpRunner&)>& record) {
  if (num_cuda_devices() == 0) GTEST_SKIP() << "no GPU";
  SCOPED_TRACE("MOESAIC_TEST_SEED=" + std::to_string(test_seed()));
  OpRunner cpu(DeviceKind::cpu), gpu(DeviceKind::cuda), again(DeviceKind::cuda);
  const Outputs expected = record(cpu), found = record(gpu), repeated = record(again);
  cpu.run(), gpu.run(), again.run();
  for (size_t i = 0; i < expected.size(); ++i) {
    const TensorInfo& info = cpu.program().info(expected[i]);
    SCOPED_TRACE(info.name);
    const auto bytes = static_cast<size_t>(info.bytes());
    EXPECT_EQ(std::memcmp(gpu.at<std::byte>(found[i]), again.at<std::byte>(repeated[i]), bytes), 0)
        << "two runs differ";
    if (info.dtype == DType::f32 || info.dtype == DType::bf16)
      EXPECT_LT(relative_error(gpu.get(found[i]), cpu.get(expected[i])),
                info.dtype == DType::f32 ? bounds.f32 : bounds.bf16);
    else
      EXPECT_EQ(std::memcmp(gpu.at<std::byte>(found[i]), cpu.at<std::byte>(expected[i]), bytes), 0)
          << "integers differ";
  }
}

}  // namespace moesaic::test
