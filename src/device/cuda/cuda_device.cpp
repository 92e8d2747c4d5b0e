#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>

#include "base/check.h"
#include "base/rng.h"
#include "device/cuda/cuda_check.h"
#include "device/cuda/cuda_memory.h"
#include "device/cuda/pause.h"
#include "device/device.h"

namespace moesaic {
namespace {

/// An event that is given back to its pool.
class EventPool {
 public:
  explicit EventPool(unsigned flags) : flags_(flags) {}
  ~EventPool() {
    for (cudaEvent_t event : free_) cudaEventDestroy(event);
  }
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;

  cudaEvent_t take() {
    if (free_.empty()) {
      cudaEvent_t event = nullptr;
      cuda_check(cudaEventCreateWithFlags(&event, flags_), "making an event");
      return event;
    }
    cudaEvent_t event = free_.back();
    free_.pop_back();
    return event;
  }
  void give(cudaEvent_t event) { free_.push_back(event); }

 private:
  unsigned flags_;
  std::vector<cudaEvent_t> free_;
};

/// Replays onto one CUDA stream per Stream. A wait of the plan is an event that was recorded right behind the node waited
/// for, so nothing later is waited for.
class CudaDevice : public Device {
 public:
  explicit CudaDevice(const CudaOptions& options) : options_(options) {
    const int count = num_cuda_devices();
    require<DeviceError>(
        count > 0,
        "run.device = cuda, but no GPU was found; see what nvidia-smi says, or set run.device = cpu");
    require<DeviceError>(options.gpu < count, "GPU {} was asked for, but this process sees {} of them",
                         options.gpu, count);
    cudaDeviceProp properties{};
    cuda_check(cudaGetDeviceProperties(&properties, options.gpu), "asking for the GPU's properties");
    require<DeviceError>(
        properties.major == 9 && properties.minor == 0,
        "GPU {} is a {} (sm_{}{}); this build runs on Hopper GPUs (sm_90) only, such as H100, H200 and H800",
        options.gpu, properties.name, properties.major, properties.minor);
    cuda_check(cudaSetDevice(options.gpu), "choosing the GPU");
    reach_peers(count);
    int least = 0, greatest = 0;
    cuda_check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "asking for stream priorities");
    for (size_t s = 0; s < kNumStreams; ++s)
      // Communication starts as soon as it can: its blocks are few and others wait for it.
      cuda_check(cudaStreamCreateWithPriority(&streams_[s], cudaStreamNonBlocking,
                                              s == index_of(Stream::compute) ? least : greatest),
                 "making a stream");
    arena_ = std::make_unique<Arena>(memory_);
  }
  ~CudaDevice() override {
    for (cudaStream_t stream : streams_) cudaStreamSynchronize(stream);
    forget_events();
    arena_.reset();
    for (cudaStream_t stream : streams_) cudaStreamDestroy(stream);
    for (void* memory : pinned_) cudaFreeHost(memory);
  }

  DeviceKind kind() const override { return DeviceKind::cuda; }

  void replay(const Plan& plan, const Bindings& bindings) override {
    const auto& nodes = plan.program().nodes();
    check_bindings(plan, bindings);
    borders_.assign(nodes.size(), {});
    for (const Border& border : plan.borders()) {
      const uint64_t base = base_of(border, bindings);
      for (const Border::Entry& entry : border.entries)
        hazards_.look(base + border.begin, base + border.end, entry.write, entry.stream,
                      borders_[static_cast<size_t>(entry.node)]);
    }
    const Clock start = enqueued_;
    for (size_t i = 0; i < nodes.size(); ++i) {
      const Node& node = nodes[i];
      MOESAIC_CHECK(node.streams.size() == 1, "{}: ops of several streams are not built yet", node.name);
      const Stream home = node.streams.front();
      for (const Hazard& hazard : borders_[i]) wait(home, hazard.before);
      for (const Wait& w : plan.nodes()[i].waits) {
        const size_t s = index_of(nodes[static_cast<size_t>(w.before)].streams.front());
        wait(home,
             {static_cast<Stream>(s), start[s] + plan.nodes()[static_cast<size_t>(w.before)].sequence[s]});
      }
      enqueue(plan, node, bindings, home);
      ++enqueued_[index_of(home)];
      if (plan.nodes()[i].awaited) record(home);
    }
    for (const Border& border : plan.borders()) {
      HazardMap::Record exit = border.exit;
      if (exit.write.sequence != 0) exit.write.sequence += start[index_of(exit.write.stream)];
      for (size_t s = 0; s < kNumStreams; ++s)
        if (exit.reads[s] != 0) exit.reads[s] += start[s];
      const uint64_t base = base_of(border, bindings);
      hazards_.merge(base + border.begin, base + border.end, exit);
    }
  }

  void fetch(void* host, const void* device, int64_t bytes) override {
    synchronize();
    cuda_check(cudaMemcpy(host, device, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost),
               "copying to the host");
  }
  void store(void* device, const void* host, int64_t bytes) override {
    synchronize();
    // On a stream of our own: a plain copy from pageable memory returns before it has arrived.
    const cudaStream_t stream = streams_[index_of(Stream::copy)];
    cuda_check(cudaMemcpyAsync(device, host, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, stream),
               "copying to the GPU");
    cuda_check(cudaStreamSynchronize(stream), "copying to the GPU");
  }
  void synchronize() override {
    for (cudaStream_t stream : streams_)
      if (const cudaError_t result = cudaStreamSynchronize(stream); result != cudaSuccess)
        cuda_check(result, fmt::format("running what was enqueued (the last op was {})", last_op_));
    send_trace();
    hazards_.clear();
    forget_events();
  }
  /// Pinned, else a copy would wait for the stream's earlier work on the host.
  std::byte* host_memory(int64_t bytes) override {
    void* memory = nullptr;
    cuda_check(cudaMallocHost(&memory, static_cast<size_t>(std::max<int64_t>(bytes, 1))),
               "allocating pinned host memory");
    pinned_.push_back(memory);
    std::memset(memory, 0, static_cast<size_t>(bytes));
    return static_cast<std::byte*>(memory);
  }

 private:
  struct Recorded {
    uint64_t sequence;
    cudaEvent_t event;
  };
  struct Traced {
    const Node* node;
    cudaEvent_t start, end;
  };

  static uint64_t base_of(const Border& border, const Bindings& bindings) {
    return reinterpret_cast<uint64_t>(bindings[static_cast<size_t>(border.slot.index)]);
  }

  /// Ranks that are threads of one process read each other's memory.
  void reach_peers(int count) {
    for (int peer = 0; peer < count; ++peer) {
      int reachable = 0;
      if (peer == options_.gpu) continue;
      cuda_check(cudaDeviceCanAccessPeer(&reachable, options_.gpu, peer), "asking about peer access");
      if (!reachable) continue;
      if (const cudaError_t result = cudaDeviceEnablePeerAccess(peer, 0);
          result == cudaErrorPeerAccessAlreadyEnabled)
        cudaGetLastError();
      else
        cuda_check(result, "enabling peer access");
    }
  }

  void enqueue(const Plan& plan, const Node& node, const Bindings& bindings, Stream home) {
    const cudaStream_t stream = streams_[index_of(home)];
    if (status_) status_(node.name);
    last_op_ = node.name;
    if (options_.delay_seed != 0) pause(stream, random_below(200000, options_.delay_seed, ++pauses_, 0));
    Traced traced{&node, nullptr, nullptr};
    if (trace_) cuda_check(cudaEventRecord(traced.start = timers_.take(), stream), node.name);
    const OpContext context(plan, node, bindings, stream);
    if (node.run) {
      node.run(context);
    } else {
      const Pending pending = node.post(context, node.take_sequence());
      while (!pending()) {
      }
    }
    cuda_check(cudaPeekAtLastError(), node.name);
    if (trace_) {
      cuda_check(cudaEventRecord(traced.end = timers_.take(), stream), node.name);
      traced_.push_back(traced);
    }
    count(node);
  }

  /// The point up to which a stream has been enqueued can be waited for from now on.
  void record(Stream home) {
    const size_t s = index_of(home);
    cudaEvent_t event = events_.take();
    cuda_check(cudaEventRecord(event, streams_[s]), "recording an event");
    recorded_[s].push_back({enqueued_[s], event});
  }

  void wait(Stream home, Point before) {
    const size_t s = index_of(before.stream);
    uint64_t& known = waited_[index_of(home)][s];
    if (before.stream == home || before.sequence <= known) return;
    const auto at =
        std::lower_bound(recorded_[s].begin(), recorded_[s].end(), before.sequence,
                         [](const Recorded& r, uint64_t sequence) { return r.sequence < sequence; });
    MOESAIC_CHECK(at != recorded_[s].end() && at->sequence == before.sequence, "no event at {} of stream {}",
                  before.sequence, name_of(before.stream));
    cuda_check(cudaStreamWaitEvent(streams_[index_of(home)], at->event, 0), "waiting for an event");
    known = before.sequence;
  }

  void forget_events() {
    for (auto& events : recorded_) {
      for (const Recorded& recorded : events) events_.give(recorded.event);
      events.clear();
    }
  }

  void send_trace() {
    if (traced_.empty()) return;
    if (zero_ == nullptr) zero_ = traced_.front().start;  // kept: the beginning of all times
    for (const Traced& traced : traced_) {
      float start = 0, end = 0;
      cuda_check(cudaEventElapsedTime(&start, zero_, traced.start), "reading a timer");
      cuda_check(cudaEventElapsedTime(&end, zero_, traced.end), "reading a timer");
      if (trace_) trace_({traced.node, start * 1e-3, end * 1e-3});
      if (traced.start != zero_) timers_.give(traced.start);
      timers_.give(traced.end);
    }
    traced_.clear();
  }

  CudaOptions options_;
  CudaMemory memory_;
  std::array<cudaStream_t, kNumStreams> streams_{};
  EventPool events_{cudaEventDisableTiming}, timers_{cudaEventDefault};
  std::array<std::deque<Recorded>, kNumStreams> recorded_;  // since the last synchronisation, in order
  std::array<Clock, kNumStreams> waited_{};                 // [who][for whom] how far it has waited
  Clock enqueued_{};
  HazardMap hazards_;
  std::vector<std::vector<Hazard>> borders_;  // [nodes] of the replay under way
  std::vector<Traced> traced_;
  std::vector<void*> pinned_;
  cudaEvent_t zero_ = nullptr;
  std::string last_op_ = "none";
  uint64_t pauses_ = 0;
};

/// Kernels are loaded before the first step, and more streams than the default 8 run side by side. Both are read when the
/// driver starts, so they are set before the first call of it.
void set_environment() {
  static std::once_flag once;
  std::call_once(once, [] {
    setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  });
}

}  // namespace

int num_cuda_devices() {
  set_environment();
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();  // no driver, or no GPU
  return 0;
}

std::string names_of_cuda_devices() {
  std::string names;
  for (int gpu = 0, count = num_cuda_devices(); gpu < count; ++gpu) {
    cudaDeviceProp properties{};
    cuda_check(cudaGetDeviceProperties(&properties, gpu), "asking for the GPU's properties");
    names += " ";
    for (const char byte : properties.uuid.bytes)
      names += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  }
  return names;
}

std::unique_ptr<Device> make_cuda_device(const CudaOptions& options) {
  return std::make_unique<CudaDevice>(options);
}

}  // namespace moesaic
