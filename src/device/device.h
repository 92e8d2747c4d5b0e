#pragma once
// A device as the rooms above see it: memory, replay of plans, and one way for the host to look at data
// (fetch). Belongs to one rank and is used by that rank's thread alone.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "device/arena.h"
#include "device/op_context.h"
#include "device/plan.h"

namespace moesaic {

/// When an op ran, as the trace shows it.
struct OpEvent {
  const Node* node;
  double start, end;  // seconds since the device was made
};

class Device {
 public:
  virtual ~Device() = default;
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  virtual DeviceKind kind() const = 0;
  Arena& arena() { return *arena_; }

  /// Enqueues every node of the plan, ordered after whatever earlier replays did to the same memory. `plan`
  /// must live until the device has run it (synchronize or fetch); bindings are copied. Throws what an op or
  /// a collective throws.
  virtual void replay(const Plan& plan, const Bindings& bindings) = 0;
  /// Waits until everything enqueued has run, then copies device memory to the host: the only way data come
  /// back.
  virtual void fetch(void* host, const void* device, int64_t bytes) = 0;
  /// Host memory to device memory, ordered after everything enqueued so far; for set-up and loading, not
  /// inside a step.
  virtual void store(void* device, const void* host, int64_t bytes) = 0;
  virtual void synchronize() = 0;
  /// Host memory from which a replayed copy reads while the host goes on; the device's, until it ends. Zeroed.
  virtual std::byte* host_memory(int64_t bytes) {
    host_memory_.push_back(std::make_unique<std::byte[]>(static_cast<size_t>(bytes)));
    return host_memory_.back().get();
  }

  /// Called with each op that has run, from the rank's thread; empty = no tracing.
  void set_trace(std::function<void(const OpEvent&)> sink) { trace_ = std::move(sink); }
  /// Told the name of each op before it runs, for messages about a rank that does not answer.
  void set_status(std::function<void(const std::string&)> status) { status_ = std::move(status); }

  /// Operations, bytes and bytes sent of everything replayed so far.
  struct Totals {
    double operations = 0, bytes = 0, sent = 0;
    int64_t nodes = 0;
  };
  const Totals& totals() const { return totals_; }

 protected:
  void count(const Node& node) {
    totals_.operations += node.cost.operations;
    totals_.bytes += node.cost.bytes;
    totals_.sent += node.cost.sent;
    ++totals_.nodes;
  }
  std::unique_ptr<Arena> arena_;
  std::function<void(const OpEvent&)> trace_;
  std::function<void(const std::string&)> status_;
  Totals totals_;
  std::vector<std::unique_ptr<std::byte[]>> host_memory_;
};

/// How a CPU device runs what is replayed.
struct CpuOptions {
  ReplayMode mode = ReplayMode::inline_;
  uint64_t chaos_seed = 1;
  /// Fill a temp with NaN before its first access and after its last one; always on in chaos mode.
  bool poison = false;
  int num_threads = 1;  // OpenMP threads inside ops
};

std::unique_ptr<Device> make_cpu_device(const CpuOptions& options);

/// How a CUDA device runs what is replayed.
struct CudaOptions {
  int gpu = 0;  // which of the machine's GPUs
  /// Not 0: a pause of random length (up to 200 us, from this seed) before ops, so that a missing wait shows.
  uint64_t delay_seed = 0;
};

/// GPUs that this process sees; 0 in a build without CUDA and on a machine without a driver.
int num_cuda_devices();
/// Which GPUs these are, in their order: a name each that no other GPU of this machine has. Empty when there are none.
std::string names_of_cuda_devices();
/// One rank's streams and memory on a GPU; several ranks may share one. Everything enqueued runs later: an error of the GPU
/// shows at the next call and names the last op enqueued. Throws DeviceError when the GPU is absent or not a Hopper one
/// (sm_90), ConfigError in a build without CUDA.
std::unique_ptr<Device> make_cuda_device(const CudaOptions& options);
/// Holds no data and runs nothing; counts costs, answers fetch with zeros. Shows that nothing above ops/
/// looks at data.
std::unique_ptr<Device> make_null_device();

}  // namespace moesaic
