#pragma once
// A program: what a layer does, recorded once per (layer, policy, shape) and replayed for every micro-batch.
// A layer's code calls ops; each op appends one node with its stream, the handles it reads and writes, its
// cost and its body. Nothing runs while a program is recorded. The planner (plan.h) turns it into a Plan, and
// a Device replays that.
//
//   Program g("layer forward", DeviceKind::cpu);
//   Slot params = g.slot("params");
//   Handle w = g.external(params, 0, "ln1", DType::f32, {D});
//   Handle y = g.temp("ln1_out", DType::f32, {T, D});
//   ops::rmsnorm_forward(g, Stream::compute, {.x = x, .gain = w, .y = y, ...});
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/shape.h"
#include "config/config.h"
#include "device/cost.h"
#include "device/stream.h"

namespace moesaic {

/// A tensor of one program. Cheap to copy; meaningless in any other program. Default: no tensor.
struct Handle {
  int32_t index = -1;
  explicit operator bool() const { return index >= 0; }
  bool operator==(const Handle&) const = default;
};

/// A piece of memory that is bound when a program is replayed (a layer's parameters, its kept activations,
/// ...). Slots of one program are bound to memory that does not overlap. Slot 0 is the workspace, where temps
/// live.
struct Slot {
  int32_t index = -1;
  explicit operator bool() const { return index >= 0; }
};

enum class Mode : uint8_t { in, out, inout };

struct Access {
  Handle handle;
  Mode mode;
  bool writes() const { return mode != Mode::in; }
};
inline Access in(Handle h) {
  return {h, Mode::in};
}
inline Access out(Handle h) {
  return {h, Mode::out};
}
inline Access inout(Handle h) {
  return {h, Mode::inout};
}

class OpContext;

/// A collective that has been posted: asked again and again until it answers true (complete). It may throw
/// CommError.
using Pending = std::function<bool()>;
/// The work of an op: enqueues it (or does it, on the CPU) and returns.
using Run = std::function<void(const OpContext&)>;
/// The work of a collective between CPU ranks: offers this rank's part and returns what completes it.
/// `sequence` is the communicator's number of this collective, taken when the node was enqueued, so that
/// every rank matches the same ones.
using Post = std::function<Pending(const OpContext&, uint64_t sequence)>;
/// Takes the next sequence number of the node's communicator.
using TakeSequence = std::function<uint64_t()>;

struct Node {
  std::string name;             // "rmsnorm_forward", "all_gather tokens"
  std::string segment;          // "attention", "dispatch", "experts", "combine", ...
  std::vector<Stream> streams;  // usually one; an op may take several and order itself inside
  std::vector<Access> accesses;
  Cost cost;
  Run run;  // an op has run; a collective has post and take_sequence
  Post post;
  TakeSequence take_sequence;
};

struct TensorInfo {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  Slot slot;           // workspace for temps
  int64_t offset = 0;  // bytes from the slot's base; of temps: set by the planner
  int32_t root = -1;   // the tensor whose memory this is (itself, unless it is a view)
  int64_t bytes() const { return shape.numel() * size_of(dtype); }
};

class Program {
 public:
  Program(std::string name, DeviceKind device);

  /// A new slot; its name shows in `moesaic inspect program`.
  Slot slot(std::string name);
  /// A tensor in a slot, `offset` bytes from its base (a multiple of the element size).
  Handle external(Slot slot, int64_t offset, std::string name, DType dtype, Shape shape);
  /// A tensor that lives from its first to its last access; the planner gives it memory in the workspace.
  Handle temp(std::string name, DType dtype, Shape shape);
  /// The same memory under another shape, from element `first` of `of` on; it must lie inside `of`.
  Handle view(Handle of, int64_t first, Shape shape, std::string name = "");

  /// Appends a node. The current segment is filled in.
  void add(Node node);
  /// Names the nodes that follow.
  void segment(std::string name) { segment_ = std::move(name); }

  const std::string& name() const { return name_; }
  DeviceKind device() const { return device_; }
  const TensorInfo& info(Handle h) const;
  const Shape& shape(Handle h) const { return info(h).shape; }
  DType dtype(Handle h) const { return info(h).dtype; }
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<std::string>& slots() const { return slots_; }

 private:
  Handle add_tensor(TensorInfo info);

  std::string name_;
  DeviceKind device_;
  std::string segment_;
  std::vector<std::string> slots_;
  std::vector<TensorInfo> tensors_;
  std::vector<Node> nodes_;
};

}  // namespace moesaic
