#pragma once
// From a program to a plan: where each temp lies, and which node waits for which. Replaying a plan is the
// only way to run a program.
//
// Memory: temps are placed in the order of recording, each as low as it fits among those alive (first fit),
// so the workspace is as large as the moment that needs most. Waits: every pair of accesses to the same bytes
// on different streams, one of them a write, is ordered as recorded. A wait that follows from others (through
// its own stream or through what the awaited node had waited for) is left out; so each wait that stays is
// needed, and dropping it makes find_unordered() report a pair.
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "device/hazard.h"
#include "device/program.h"

namespace moesaic {

struct Wait {
  int32_t node;    // who waits
  Stream stream;   // on which of its streams
  int32_t before;  // the node that must be over
  bool reuse;      // true: only because memory is reused, not because data flow
};

struct PlannedNode {
  std::vector<Wait> waits;
  std::array<uint64_t, kNumStreams>
      sequence{};  // its place in each of its streams, from 1; 0 = not on that stream
  bool awaited =
      false;  // something may wait for it: a node of this program, or through a border one of a later program
};

/// Accesses of a program at its borders, for ordering against other programs.
struct Border {
  Slot slot;
  uint64_t begin, end;  // bytes from the slot's base
  struct Entry {
    int32_t node;
    Stream stream;
    bool write;
  };
  std::vector<Entry> entries;  // accesses that no earlier one of this program orders
  HazardMap::Record exit;      // last accesses; sequences relative to the program's start
};

class Plan {
 public:
  explicit Plan(Program program);

  const Program& program() const { return program_; }
  const std::vector<PlannedNode>& nodes() const { return nodes_; }
  const std::vector<Border>& borders() const { return borders_; }
  /// Bytes of workspace that a replay needs.
  int64_t workspace_bytes() const { return workspace_bytes_; }
  /// Bytes from its slot's base, for temps as well.
  int64_t offset(Handle h) const { return offsets_[static_cast<size_t>(h.index)]; }
  /// First and last node that touches a root tensor or a view of it; -1 if none does.
  std::pair<int32_t, int32_t> lifetime(Handle root) const {
    return lifetimes_[static_cast<size_t>(root.index)];
  }
  /// All waits in order of the waiting node.
  std::vector<Wait> waits() const;
  /// Nodes on each stream.
  const Clock& lengths() const { return lengths_; }

  /// The plan without its k-th wait (waits()[k]); only for tests of the planner.
  Plan without_wait(size_t k) const;

 private:
  void place_temps();
  void derive_waits();
  void derive_borders();
  void mark_awaited();

  Program program_;
  std::vector<int64_t> offsets_;                        // [tensors] bytes from the slot's base, temps placed
  std::vector<std::pair<int32_t, int32_t>> lifetimes_;  // [tensors]
  std::vector<PlannedNode> nodes_;
  std::vector<Border> borders_;
  Clock lengths_{};
  int64_t workspace_bytes_ = 0;
};

/// Two nodes that touch the same bytes, one of them writing, or that share a stream, without any order between them; none in a
/// correct plan. Written without the planner's bookkeeping (a full reachability matrix), so that it can check
/// it.
std::optional<std::pair<int32_t, int32_t>> find_unordered(const Plan& plan);

/// Each node with its stream, waits and bytes, as `moesaic inspect program` prints it.
std::string print_plan(const Plan& plan);

}  // namespace moesaic
