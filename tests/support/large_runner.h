#pragma once
// What tests of tensors beyond 2^31 elements need: tensors on a GPU of which the host sees a few rows, and which rows those are.
#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "support/parity.h"

namespace moesaic::test {

constexpr int64_t kBorder = int64_t{1} << 31, kWidth = 4096, kWide = 2 * kWidth;
// Rows of kWidth cross 2^31 elements five rows before the end; rows of kWide cross it half-way, and 2^32 elements near the end.
constexpr int64_t kRows = kBorder / kWidth + 5;

/// A program on a GPU whose tensors lie there alone, zeroed; the host sees the pieces it asks for.
class LargeRunner {
 public:
  Program& program() { return program_; }
  Handle tensor(const std::string& name, Shape shape, DType type) {
    const Handle h = program_.external(program_.slot(name), 0, name, type, shape);
    bindings_.push_back(device_->arena().allocate(Purpose::buffers, name, program_.info(h).bytes()));
    return h;
  }
  template <class T>
  void store(Handle h, int64_t first, const std::vector<T>& values) {
    device_->store(address<T>(h, first), values.data(), static_cast<int64_t>(values.size() * sizeof(T)));
  }
  template <class T>
  std::vector<T> fetch(Handle h, int64_t first, int64_t count) {
    std::vector<T> values(static_cast<size_t>(count));
    device_->fetch(values.data(), address<T>(h, first), count * static_cast<int64_t>(sizeof(T)));
    return values;
  }
  Handle ints(const std::string& name, const std::vector<int32_t>& values) {
    const Handle h = tensor(name, {static_cast<int64_t>(values.size())}, DType::i32);
    store(h, 0, values);
    return h;
  }
  /// Rows of BF16 numbers as floats.
  void store_row(Handle h, int64_t row, const std::vector<float>& values) {
    store(h, row * program_.shape(h)[-1], std::vector<bf16>(values.begin(), values.end()));
  }
  std::vector<float> row(Handle h, int64_t row) {
    const int64_t width = program_.shape(h)[-1];
    const auto values = fetch<bf16>(h, row * width, width);
    return std::vector<float>(values.begin(), values.end());
  }
  void run() {
    const Plan plan(program_);
    bindings_[0] = device_->arena().allocate(Purpose::workspace, "workspace", plan.workspace_bytes());
    device_->replay(plan, bindings_);
    device_->synchronize();
  }

 private:
  template <class T>
  T* address(Handle h, int64_t first) {
    return reinterpret_cast<T*>(bindings_[static_cast<size_t>(program_.info(h).slot.index)]) + first;
  }

  std::unique_ptr<Device> device_ = make_cuda_device({});
  Program program_{"large", DeviceKind::cuda};
  Bindings bindings_{nullptr};
};

/// Numbers that BF16 holds, different for each row.
inline std::vector<float> some_row(int64_t row, int64_t width, uint64_t seed) {
  auto values = fresh_randn(width, seed * 1000003 + static_cast<uint64_t>(row));
  for (float& x : values) x = float(bf16(x));
  return values;
}

/// Rows whose first element stands at the beginning, around the border (of rows of kWidth and of 2 kWidth) and at the end.
/// With each row the one as far from the end, so that a reversal maps the samples to each other.
inline std::vector<int64_t> sampled_rows() {
  std::vector<int64_t> rows = {0,        kRows / 2 - 3, kRows / 2, kBorder / kWidth - 1, kBorder / kWidth,
                               kRows - 1};
  for (size_t i = 0, n = rows.size(); i < n; ++i) rows.push_back(kRows - 1 - rows[i]);
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  return rows;
}

inline std::vector<int32_t> reversed_rows() {
  std::vector<int32_t> map(static_cast<size_t>(kRows));
  std::iota(map.rbegin(), map.rend(), 0);
  return map;
}

/// Whether a GPU has this much free memory.
inline bool gpu_has(int64_t bytes) {
  try {
    make_cuda_device({})->arena().allocate(Purpose::buffers, "as much as a test needs", bytes);
    return true;
  } catch (const DeviceError&) {
    return false;
  }
}

#define NEEDS_GPU_MEMORY(gib)                                                                     \
  if (num_cuda_devices() == 0) GTEST_SKIP() << "no GPU";                                          \
  if (!gpu_has(int64_t{gib} << 30)) GTEST_SKIP() << "less than " #gib " GiB of the GPU are free"; \
  SCOPED_TRACE("MOESAIC_TEST_SEED=" + std::to_string(test_seed()))

}  // namespace moesaic::test
