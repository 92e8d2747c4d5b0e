#pragma once
// Runs one op (or a few) on a CPU or CUDA device with host vectors as tensors, for tests: give it inputs, record, run, read.
//
//   OpRunner r;
//   Handle x = r.tensor("x", {4, 8}, values), y = r.tensor("y", {4, 8});
//   ops::rmsnorm_forward(r.program(), Stream::compute, {...});
//   r.run();
//   EXPECT_NEAR(r.get(y)[3], ...);
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "device/device.h"

namespace moesaic::test {

/// count numbers from a normal distribution, fixed by the seed.
inline std::vector<float> randn(int64_t count, uint64_t seed, float scale = 1) {
  std::vector<float> v(static_cast<size_t>(count));
  for (size_t i = 0; i < v.size(); ++i) v[i] = scale * random_normal(seed, 99, i);
  return v;
}

class OpRunner {
 public:
  explicit OpRunner(int num_threads = 1) : OpRunner(DeviceKind::cpu, num_threads) {}
  explicit OpRunner(DeviceKind kind, int num_threads = 1)
      : program_("test", kind), slot_(program_.slot("tensors")), num_threads_(num_threads) {}

  Program& program() { return program_; }

  /// A float tensor; without values it is filled with NaN, so an op that leaves part of its output out shows.
  Handle tensor(const std::string& name, Shape shape, std::vector<float> values = {},
                DType dtype = DType::f32) {
    if (values.empty())
      values.assign(static_cast<size_t>(shape.numel()), std::numeric_limits<float>::quiet_NaN());
    MOESAIC_CHECK(static_cast<int64_t>(values.size()) == shape.numel(), "{}", name);
    const Handle h = make(name, shape, dtype);
    for (size_t i = 0; i < values.size(); ++i) {
      if (dtype == DType::bf16)
        at<bf16>(h)[i] = bf16(values[i]);
      else
        at<float>(h)[i] = values[i];
    }
    return h;
  }
  /// An integer tensor; without values it is filled with 0x7fffffff.
  Handle ints(const std::string& name, Shape shape, std::vector<int32_t> values = {}) {
    if (values.empty()) values.assign(static_cast<size_t>(shape.numel()), 0x7fffffff);
    MOESAIC_CHECK(static_cast<int64_t>(values.size()) == shape.numel(), "{}", name);
    const Handle h = make(name, shape, DType::i32);
    std::memcpy(at<int32_t>(h), values.data(), values.size() * 4);
    return h;
  }
  /// Any other type, zeroed: read and write through at<T>().
  Handle raw(const std::string& name, Shape shape, DType dtype) { return make(name, shape, dtype); }

  /// Plans and runs the program recorded so far; may be called again (the program is replayed).
  void run() {
    const auto device = program_.device() == DeviceKind::cuda
                            ? make_cuda_device({})
                            : make_cpu_device({.num_threads = num_threads_});
    const Plan plan(program_);
    const auto bytes = static_cast<int64_t>(memory_.size());
    std::byte* workspace = device->arena().allocate(Purpose::workspace, "workspace", plan.workspace_bytes());
    std::byte* tensors = device->arena().allocate(Purpose::buffers, "tensors", bytes);
    device->store(tensors, memory_.data(), bytes);
    device->replay(plan, {workspace, tensors});
    device->fetch(memory_.data(), tensors, bytes);
  }

  std::vector<float> get(Handle h) {
    std::vector<float> v(static_cast<size_t>(program_.shape(h).numel()));
    for (size_t i = 0; i < v.size(); ++i)
      v[i] = program_.dtype(h) == DType::bf16 ? float(at<bf16>(h)[i]) : at<float>(h)[i];
    return v;
  }
  std::vector<int32_t> get_ints(Handle h) {
    const int32_t* p = at<int32_t>(h);
    return {p, p + program_.shape(h).numel()};
  }
  void set(Handle h, const std::vector<float>& values) {
    for (size_t i = 0; i < values.size(); ++i) at<float>(h)[i] = values[i];
  }
  template <class T>
  T* at(Handle h) {
    return reinterpret_cast<T*>(memory_.data() + program_.info(h).offset);
  }

 private:
  Handle make(const std::string& name, Shape shape, DType dtype) {
    const int64_t offset = round_up(static_cast<int64_t>(memory_.size()), 64);
    memory_.resize(static_cast<size_t>(offset + shape.numel() * size_of(dtype)));
    return program_.external(slot_, offset, name, dtype, shape);
  }

  Program program_;
  Slot slot_;
  std::vector<std::byte> memory_;
  int num_threads_;
};

/// |a - b| / |b| over whole tensors (Euclidean norms): the measure of every comparison in the tests.
inline double relative_error(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    difference += (double(a[i]) - b[i]) * (double(a[i]) - b[i]);
    norm += double(b[i]) * b[i];
  }
  if (std::isnan(difference)) return difference;
  return norm == 0 ? std::sqrt(difference) : std::sqrt(difference / norm);
}

}  // namespace moesaic::test
