#pragma once
// Programs made at random, whose results depend on the order in which conflicting nodes run: every node mixes all that it
// reads into all that it writes.
#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/rng.h"
#include "device/device.h"

namespace moesaic::test {

/// Random numbers one after the other.
class Dice {
 public:
  explicit Dice(uint64_t seed) : seed_(seed) {}
  /// In [0, bound).
  int64_t below(int64_t bound) {
    return static_cast<int64_t>(random_below(static_cast<uint64_t>(bound), seed_, 17, index_++));
  }
  bool chance(int64_t percent) { return below(100) < percent; }

 private:
  uint64_t seed_, index_ = 0;
};

inline uint32_t mix(uint32_t state, uint32_t value) {
  state = (state ^ value) * 0x9e3779b1u;
  return state ^ (state >> 15);
}

/// Appends a node that writes a hash of `name`, of everything it reads and of its own old values to everything it writes.
inline void add_mixer(Program& g, const std::string& name, std::vector<Stream> streams,
                      const std::vector<Access>& accesses) {
  Node node{.name = name, .streams = std::move(streams), .accesses = accesses};
  node.run = [name, accesses](const OpContext& c) {
    const auto words = [&](Handle h) { return c.shape(h).numel(); };
    uint32_t state = static_cast<uint32_t>(stream_of(name));
    for (const Access& a : accesses) {
      if (a.mode == Mode::out) continue;
      const std::byte* from = a.mode == Mode::in ? c.in_bytes(a.handle) : c.inout_bytes(a.handle);
      for (int64_t i = 0; i < words(a.handle); ++i) {
        uint32_t word = 0;
        std::memcpy(&word, from + 4 * i, 4);
        state = mix(state, word);
      }
    }
    for (const Access& a : accesses) {
      if (!a.writes()) continue;
      std::byte* to = a.mode == Mode::out ? c.out_bytes(a.handle) : c.inout_bytes(a.handle);
      for (int64_t i = 0; i < words(a.handle); ++i) {
        const uint32_t word = mix(state, static_cast<uint32_t>(i));
        std::memcpy(to + 4 * i, &word, 4);
      }
    }
  };
  g.add(std::move(node));
}

struct RandomProgramOptions {
  int64_t num_nodes = 24;
  int64_t slot_words = 64;   // of each of the two slots
  int64_t most_streams = 1;  // of one node
};

/// A program over two slots ("a", "b"), temps of several sizes, and views. Temps are written whole before they are read: by
/// one node, or in two halves by two. A third slot, "record", has a word for each stream, into which its nodes mix what they
/// read, so that nothing read is without effect.
inline Program random_program(uint64_t seed, const RandomProgramOptions& options = {}) {
  Dice dice(seed);
  Program g("random " + std::to_string(seed), DeviceKind::cpu);
  const Slot slots[] = {g.slot("a"), g.slot("b")};
  const Slot record = g.slot("record");
  std::vector<Handle> temps;
  const auto streams = [&] {
    std::vector<Stream> chosen{static_cast<Stream>(dice.below(kNumStreams))};
    while (static_cast<int64_t>(chosen.size()) < options.most_streams && dice.chance(30)) {
      const auto other = static_cast<Stream>(dice.below(kNumStreams));
      if (std::find(chosen.begin(), chosen.end(), other) == chosen.end()) chosen.push_back(other);
    }
    return chosen;
  };
  const auto external = [&] {
    const int64_t first = dice.below(options.slot_words - 8), count = 1 + dice.below(8);
    return g.external(slots[dice.below(2)], 4 * first, "external", DType::f32, {count});
  };
  const auto part = [&](Handle h) {
    const int64_t count = g.shape(h).numel();
    if (count < 2 || dice.chance(60)) return h;
    const int64_t first = dice.below(count - 1);
    return g.view(h, first, {1 + dice.below(count - first)}, "part");
  };
  const auto add = [&](const std::string& name, std::vector<Access> accesses) {
    const std::vector<Stream> on = streams();
    accesses.push_back(
        inout(g.external(record, 4 * static_cast<int64_t>(index_of(on.front())), "record", DType::f32, {1})));
    add_mixer(g, name, on, accesses);
  };
  // A few temps only, the newest, so that older ones end and their memory is used again.
  const auto old_temp = [&] {
    return temps[temps.size() - 1 -
                 static_cast<size_t>(dice.below(std::min<int64_t>(3, static_cast<int64_t>(temps.size()))))];
  };
  for (int64_t i = 0; i < options.num_nodes; ++i) {
    std::vector<Access> accesses;
    for (int64_t r = dice.below(3); r > 0; --r)
      accesses.push_back(in(!temps.empty() && dice.chance(70) ? part(old_temp()) : external()));
    const std::string name = "node " + std::to_string(i);
    if (dice.chance(35)) {
      const int64_t words = 16 << dice.below(4);
      const Handle whole = g.temp("temp " + std::to_string(temps.size()), DType::f32, {2 * words});
      if (dice.chance(30)) {
        add(name + " first half", {out(g.view(whole, 0, {words}))});
        accesses.push_back(out(g.view(whole, words, {words})));
      } else {
        accesses.push_back(out(whole));
      }
      add(name, accesses);
      temps.push_back(whole);
      continue;
    }
    const Handle written = !temps.empty() && dice.chance(40) ? part(old_temp()) : external();
    accesses.push_back({written, dice.chance(50) ? Mode::out : Mode::inout});
    add(name, accesses);
  }
  return g;
}

/// Runs programs one after the other on one device, over the same two pieces of memory (in turn as "a" and "b" and the other
/// way round) and one workspace; returns the memory at the end.
inline std::vector<uint32_t> run_all(const std::vector<Plan>& plans, const CpuOptions& options,
                                     int64_t slot_words = 64) {
  const auto device = make_cpu_device(options);
  int64_t workspace = 0;
  for (const Plan& plan : plans) workspace = std::max(workspace, plan.workspace_bytes());
  std::byte* temps = device->arena().allocate(Purpose::workspace, "temps", workspace);
  std::vector<uint32_t> memory(static_cast<size_t>(2 * slot_words + kNumStreams));
  for (size_t i = 0; i < memory.size(); ++i) memory[i] = mix(static_cast<uint32_t>(i), 77);
  std::byte* const pieces[] = {reinterpret_cast<std::byte*>(memory.data()),
                               reinterpret_cast<std::byte*>(memory.data() + slot_words)};
  auto* record = reinterpret_cast<std::byte*>(memory.data() + 2 * slot_words);
  for (size_t p = 0; p < plans.size(); ++p) {
    Bindings bindings{temps, pieces[p % 2], pieces[1 - p % 2], record};
    bindings.resize(plans[p].program().slots().size());
    device->replay(plans[p], bindings);
  }
  device->synchronize();
  return memory;
}

}  // namespace moesaic::test
