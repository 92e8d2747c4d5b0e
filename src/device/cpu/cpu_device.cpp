#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <memory>

#include "base/rng.h"
#include "device/cpu/backoff.h"
#include "device/cpu/cpu_memory.h"
#include "device/cpu/threads.h"
#include "device/device.h"

namespace moesaic {
namespace {

/// Replays in the order of recording, or (chaos) puts nodes on one queue per stream and runs those whose
/// waits are satisfied in a seeded random order, as a GPU might.
class CpuDevice : public Device {
 public:
  explicit CpuDevice(const CpuOptions& options) : options_(options), poison_(options.poison || chaos()) {
    arena_ = std::make_unique<Arena>(memory_);
    set_num_threads(options.num_threads);
    flush_denormals();
    shuffle_priorities();
  }
  ~CpuDevice() override { arena_.reset(); }

  DeviceKind kind() const override { return DeviceKind::cpu; }

  void replay(const Plan& plan, const Bindings& bindings) override {
    check_bindings(plan, bindings);
    if (chaos()) return enqueue(plan, bindings);
    const auto& nodes = plan.program().nodes();
    Replay replay{&plan, bindings, accesses_left(plan)};
    for (size_t i = 0; i < nodes.size(); ++i) {
      const double start = now();
      const OpContext context(plan, nodes[i], bindings);
      poison_first(replay, i);
      set_running(nodes[i]);
      if (nodes[i].run) {
        nodes[i].run(context);
      } else {
        const Pending pending = nodes[i].post(context, nodes[i].take_sequence());
        for (Backoff backoff; !pending();) backoff.wait();
      }
      poison_last(replay, i);
      finish(nodes[i], start);
    }
  }

  void fetch(void* host, const void* device, int64_t bytes) override {
    synchronize();
    std::memcpy(host, device, static_cast<size_t>(bytes));
  }
  void store(void* device, const void* host, int64_t bytes) override {
    synchronize();
    std::memcpy(device, host, static_cast<size_t>(bytes));
  }
  void synchronize() override {
    for (Backoff backoff; !queues_empty();) {
      if (run_one())
        backoff.reset();
      else
        backoff.wait();
    }
    hazards_.clear();
  }

 private:
  struct Replay {
    const Plan* plan;
    Bindings bindings;
    std::vector<int32_t> left;  // [tensors] accesses to come of a root and its views; empty unless poisoning
  };
  struct Queued {
    std::shared_ptr<Replay> replay;
    size_t node;
    std::vector<Point> waits;
    uint64_t collective;  // sequence number on its communicator
    Pending pending;      // set once posted
    double start = 0;
  };

  bool chaos() const { return options_.mode == ReplayMode::chaos; }

  void enqueue(const Plan& plan, const Bindings& bindings) {
    const auto replay = std::make_shared<Replay>(Replay{&plan, bindings, accesses_left(plan)});
    const auto& nodes = plan.program().nodes();
    std::vector<std::vector<Point>> waits(nodes.size());
    const auto absolute = [&](Stream s, uint64_t relative) {
      return Point{s, enqueued_[index_of(s)] + relative};
    };
    for (size_t i = 0; i < nodes.size(); ++i) {
      for (const Wait& wait : plan.nodes()[i].waits) {
        const Stream s = nodes[static_cast<size_t>(wait.before)].streams.front();
        waits[i].push_back(absolute(s, plan.nodes()[static_cast<size_t>(wait.before)].sequence[index_of(s)]));
      }
    }
    for (const Border& border : plan.borders()) {
      const auto base = reinterpret_cast<uint64_t>(bindings[static_cast<size_t>(border.slot.index)]);
      for (const Border::Entry& entry : border.entries) {
        std::vector<Hazard> found;
        hazards_.look(base + border.begin, base + border.end, entry.write, entry.stream, found);
        for (const Hazard& hazard : found) waits[static_cast<size_t>(entry.node)].push_back(hazard.before);
      }
    }
    for (const Border& border : plan.borders()) {
      const auto base = reinterpret_cast<uint64_t>(bindings[static_cast<size_t>(border.slot.index)]);
      HazardMap::Record exit = border.exit;
      if (exit.write.sequence != 0) exit.write = absolute(exit.write.stream, exit.write.sequence);
      for (size_t s = 0; s < kNumStreams; ++s)
        if (exit.reads[s] != 0) exit.reads[s] += enqueued_[s];
      hazards_.merge(base + border.begin, base + border.end, exit);
    }
    for (size_t i = 0; i < nodes.size(); ++i) {
      MOESAIC_CHECK(nodes[i].streams.size() == 1, "{}: CPU queues run ops of one stream", nodes[i].name);
      const uint64_t collective = nodes[i].take_sequence ? nodes[i].take_sequence() : 0;
      queues_[index_of(nodes[i].streams.front())].push_back(
          {replay, i, std::move(waits[i]), collective, {}, 0});
    }
    for (size_t s = 0; s < kNumStreams; ++s) enqueued_[s] += plan.lengths()[s];
  }

  bool queues_empty() const {
    return std::all_of(queues_.begin(), queues_.end(), [](const auto& q) { return q.empty(); });
  }

  /// Runs or advances the ready node whose stream has the highest priority; false if none could move.
  bool run_one() {
    if (++turns_ >= next_shuffle_) shuffle_priorities();
    for (size_t s : order_) {
      if (queues_[s].empty()) continue;
      Queued& head = queues_[s].front();
      Replay& replay = *head.replay;
      const Node& node = replay.plan->program().nodes()[head.node];
      if (!std::all_of(head.waits.begin(), head.waits.end(),
                       [&](const Point& p) { return done_[index_of(p.stream)] >= p.sequence; }))
        continue;
      if (!head.pending) {
        head.start = now();
        const OpContext context(*replay.plan, node, replay.bindings);
        poison_first(replay, head.node);
        set_running(node);
        if (node.run)
          node.run(context);
        else
          head.pending = node.post(context, head.collective);
      }
      if (head.pending && !head.pending()) {
        if (insists_) return false;
        continue;
      }
      poison_last(replay, head.node);
      finish(node, head.start);
      ++done_[s];
      queues_[s].pop_front();
      return true;
    }
    return false;
  }

  /// New priorities, for 1 to 64 turns: now streams alternate, now one runs far ahead of the others.
  void shuffle_priorities() {
    next_shuffle_ = turns_ + (uint64_t{1} << random_below(7, options_.chaos_seed, turns_, kNumStreams));
    insists_ = random_below(2, options_.chaos_seed, turns_, kNumStreams + 1) == 1;
    for (size_t s = 0; s < kNumStreams; ++s) order_[s] = s;
    for (size_t s = kNumStreams - 1; s > 0; --s)
      std::swap(order_[s], order_[random_below(s + 1, options_.chaos_seed, turns_, s)]);
  }

  std::vector<int32_t> accesses_left(const Plan& plan) const {
    std::vector<int32_t> left;
    if (!poison_) return left;
    left.resize(plan.program().tensors().size());
    for (const Node& node : plan.program().nodes())
      for (const Access& access : node.accesses)
        ++left[static_cast<size_t>(plan.program().info(access.handle).root)];
    return left;
  }
  /// Before a node: fills what it is the first to write of a temp. Whatever else touches those bytes is ordered after it.
  void poison_first(const Replay& replay, size_t node) {
    if (!poison_) return;
    const Program& program = replay.plan->program();
    for (const Access& access : program.nodes()[node].accesses)
      if (replay.plan->lifetime({program.info(access.handle).root}).first == static_cast<int32_t>(node))
        fill(replay, access.handle);
  }
  /// After a node: fills what it read last of a temp, once nothing that touches the temp is still to run. (Only the bytes of
  /// this access: the next tenant of other bytes need not have waited for it.)
  void poison_last(Replay& replay, size_t node) {
    if (!poison_) return;
    const Program& program = replay.plan->program();
    for (const Access& access : program.nodes()[node].accesses)
      if (--replay.left[static_cast<size_t>(program.info(access.handle).root)] == 0)
        fill(replay, access.handle);
  }
  /// With NaN; integers stay, since they may index memory.
  static void fill(const Replay& replay, Handle h) {
    const TensorInfo& info = replay.plan->program().info(h);
    if (info.slot.index != 0 || (info.dtype != DType::f32 && info.dtype != DType::bf16)) return;
    std::memset(replay.bindings[0] + replay.plan->offset(h), 0xff, static_cast<size_t>(info.bytes()));
  }

  void set_running(const Node& node) {
    if (status_) status_(node.name);
  }
  void finish(const Node& node, double start) {
    count(node);
    if (trace_) trace_({&node, start, now()});
  }
  double now() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - birth_).count();
  }

  CpuOptions options_;
  bool poison_;
  CpuMemory memory_;
  std::chrono::steady_clock::time_point birth_ = std::chrono::steady_clock::now();
  std::array<std::deque<Queued>, kNumStreams> queues_;
  std::array<size_t, kNumStreams> order_{};
  Clock enqueued_{}, done_{};
  uint64_t turns_ = 0, next_shuffle_ = 0;
  bool insists_ =
      false;  // a collective that is not complete keeps lower priorities waiting, as if it were fast
  HazardMap hazards_;
};

}  // namespace

std::unique_ptr<Device> make_cpu_device(const CpuOptions& options) {
  return std::make_unique<CpuDevice>(options);
}

}  // namespace moesaic
