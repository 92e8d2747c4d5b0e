#include "device/plan.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"

namespace moesaic {
namespace {

constexpr int64_t kAlign = 256;
constexpr uint64_t kSlotSpan = uint64_t{1} << 48;

uint64_t key(Slot slot, int64_t offset) {
  return static_cast<uint64_t>(slot.index) * kSlotSpan + static_cast<uint64_t>(offset);
}

/// Free and taken bytes of the workspace while temps come and go.
class FirstFit {
 public:
  int64_t take(int64_t bytes) {
    bytes = std::max<int64_t>(round_up(bytes, kAlign), kAlign);
    int64_t at = 0;
    for (const auto& [begin, end] : taken_) {
      if (begin - at >= bytes) break;
      at = end;
    }
    taken_[at] = at + bytes;
    high_ = std::max(high_, at + bytes);
    return at;
  }
  void give(int64_t at) { taken_.erase(at); }
  int64_t high() const { return high_; }

 private:
  std::map<int64_t, int64_t> taken_;
  int64_t high_ = 0;
};

}  // namespace

Plan::Plan(Program program) : program_(std::move(program)) {
  nodes_.resize(program_.nodes().size());
  place_temps();
  derive_waits();
  derive_borders();
}

void Plan::place_temps() {
  const auto& tensors = program_.tensors();
  const auto& nodes = program_.nodes();
  lifetimes_.assign(tensors.size(), {-1, -1});
  for (size_t i = 0; i < nodes.size(); ++i)
    for (const Access& access : nodes[i].accesses) {
      const auto root = static_cast<size_t>(program_.info(access.handle).root);
      auto& [first, last] = lifetimes_[root];
      if (first < 0) first = static_cast<int32_t>(i);
      last = static_cast<int32_t>(i);
      if (tensors[root].slot.index == 0 && first == static_cast<int32_t>(i))
        MOESAIC_CHECK(access.writes(), "{}: {} reads {}, which nothing has written", program_.name(),
                      nodes[i].name, tensors[root].name);
    }
  std::vector<int64_t> at(tensors.size(), 0);
  FirstFit memory;
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (size_t t = 0; t < tensors.size(); ++t)
      if (tensors[t].slot.index == 0 && lifetimes_[t].first == static_cast<int32_t>(i))
        at[t] = memory.take(tensors[t].bytes());
    for (size_t t = 0; t < tensors.size(); ++t)
      if (tensors[t].slot.index == 0 && lifetimes_[t].second == static_cast<int32_t>(i)) memory.give(at[t]);
  }
  workspace_bytes_ = memory.high();
  offsets_.resize(tensors.size());
  for (size_t t = 0; t < tensors.size(); ++t)
    offsets_[t] =
        tensors[t].offset + (tensors[t].slot.index == 0 ? at[static_cast<size_t>(tensors[t].root)] : 0);
}

void Plan::derive_waits() {
  const auto& nodes = program_.nodes();
  HazardMap map;
  std::vector<Clock> clock_after(nodes.size());           // what is over once node i is over
  std::array<Clock, kNumStreams> now{};                   // what is over before a stream's next node
  std::array<std::vector<int32_t>, kNumStreams> node_at;  // [stream][sequence - 1]
  for (size_t i = 0; i < nodes.size(); ++i) {
    const Node& node = nodes[i];
    const auto me = static_cast<int32_t>(i);
    const Stream home = node.streams.front();
    std::vector<Hazard> hazards;
    for (const Access& access : node.accesses) {
      const TensorInfo& info = program_.info(access.handle);
      if (info.bytes() == 0) continue;
      const uint64_t begin = key(info.slot, offset(access.handle));
      const size_t from = hazards.size();
      map.look(begin, begin + static_cast<uint64_t>(info.bytes()), access.writes(), home, hazards);
      for (size_t h = from; h < hazards.size(); ++h)
        hazards[h].tensor = info.slot.index == 0 && hazards[h].tensor != info.root;
    }
    // A node on several streams orders itself inside, so it starts when all of them have come to it.
    for (Stream s : node.streams)
      if (s != home && !node_at[index_of(s)].empty())
        hazards.push_back({{s, node_at[index_of(s)].size()}, 0});
    struct Candidate {
      int32_t before;
      Point point;
      bool reuse;
    };
    std::vector<Candidate> candidates;
    for (const Hazard& hazard : hazards) {
      const size_t s = index_of(hazard.before.stream);
      if (now[index_of(home)][s] >= hazard.before.sequence) continue;
      const int32_t before = node_at[s][hazard.before.sequence - 1];
      const auto same = std::find_if(candidates.begin(), candidates.end(),
                                     [&](const Candidate& c) { return c.before == before; });
      if (same != candidates.end())
        same->reuse = same->reuse && hazard.tensor != 0;
      else
        candidates.push_back({before, hazard.before, hazard.tensor != 0});
    }
    for (const Candidate& c : candidates) {
      const bool implied = std::any_of(candidates.begin(), candidates.end(), [&](const Candidate& other) {
        return other.before != c.before &&
               clock_after[static_cast<size_t>(other.before)][index_of(c.point.stream)] >= c.point.sequence;
      });
      if (implied) continue;
      nodes_[i].waits.push_back({me, home, c.before, c.reuse});
    }
    Clock known = now[index_of(home)];
    for (const Wait& wait : nodes_[i].waits)
      for (size_t t = 0; t < kNumStreams; ++t)
        known[t] = std::max(known[t], clock_after[static_cast<size_t>(wait.before)][t]);
    for (Stream s : node.streams) {
      node_at[index_of(s)].push_back(me);
      nodes_[i].sequence[index_of(s)] = node_at[index_of(s)].size();
      known[index_of(s)] = node_at[index_of(s)].size();
    }
    for (Stream s : node.streams) now[index_of(s)] = known;
    clock_after[i] = known;
    for (const Access& access : node.accesses) {
      const TensorInfo& info = program_.info(access.handle);
      if (info.bytes() == 0) continue;
      const uint64_t begin = key(info.slot, offset(access.handle));
      map.note(begin, begin + static_cast<uint64_t>(info.bytes()), access.writes(),
               {home, nodes_[i].sequence[index_of(home)]}, info.root);
    }
  }
  for (size_t s = 0; s < kNumStreams; ++s) lengths_[s] = node_at[s].size();
  // What is left in the map is the state at the program's end; derive_borders adds the entries.
  for (const auto& [begin, interval] : map.space()) {
    const auto slot = static_cast<int32_t>(begin / kSlotSpan);
    borders_.push_back(
        {Slot{slot}, begin % kSlotSpan, (interval.first - 1) % kSlotSpan + 1, {}, interval.second});
  }
}

void Plan::derive_borders() {
  for (Border& border : borders_) {
    bool written = false;
    std::array<bool, kNumStreams> seen{};
    for (size_t i = 0; i < program_.nodes().size() && !written; ++i) {
      const Node& node = program_.nodes()[i];
      bool reads = false, writes = false;
      for (const Access& access : node.accesses) {
        const TensorInfo& info = program_.info(access.handle);
        const auto begin = static_cast<uint64_t>(offset(access.handle));
        if (info.slot.index != border.slot.index ||
            begin + static_cast<uint64_t>(info.bytes()) <= border.begin || begin >= border.end)
          continue;
        (access.writes() ? writes : reads) = true;
      }
      const Stream home = node.streams.front();
      if (writes || (reads && !seen[index_of(home)])) {
        border.entries.push_back({static_cast<int32_t>(i), home, writes});
        seen[index_of(home)] = true;
      }
      written = writes;
    }
  }
  mark_awaited();
}

void Plan::mark_awaited() {
  std::array<std::vector<size_t>, kNumStreams> node_at;  // [stream][sequence - 1]
  for (size_t i = 0; i < nodes_.size(); ++i) {
    for (const Wait& wait : nodes_[i].waits) nodes_[static_cast<size_t>(wait.before)].awaited = true;
    for (Stream s : program_.nodes()[i].streams) node_at[index_of(s)].push_back(i);
  }
  const auto mark = [&](size_t stream, uint64_t sequence) {
    if (sequence > 0) nodes_[node_at[stream][sequence - 1]].awaited = true;
  };
  for (const Border& border : borders_) {
    mark(index_of(border.exit.write.stream), border.exit.write.sequence);
    for (size_t s = 0; s < kNumStreams; ++s) mark(s, border.exit.reads[s]);
  }
}

std::vector<Wait> Plan::waits() const {
  std::vector<Wait> all;
  for (const PlannedNode& node : nodes_) all.insert(all.end(), node.waits.begin(), node.waits.end());
  return all;
}

Plan Plan::without_wait(size_t k) const {
  Plan copy = *this;
  for (PlannedNode& node : copy.nodes_) {
    if (k < node.waits.size()) {
      node.waits.erase(node.waits.begin() + static_cast<std::ptrdiff_t>(k));
      return copy;
    }
    k -= node.waits.size();
  }
  MOESAIC_CHECK(false, "no such wait");
  return copy;
}

}  // namespace moesaic
