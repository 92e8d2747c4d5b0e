#pragma once
// What the body of an op sees when its turn comes: pointers of the handles it declared, and nothing else.
#include <vector>

#include "base/check.h"
#include "device/plan.h"

namespace moesaic {

/// Base address of each slot of a program, in order of slot index; [0] is the workspace.
using Bindings = std::vector<std::byte*>;

/// Aborts unless every slot of the plan's program is bound, and the workspace too when the plan needs one.
void check_bindings(const Plan& plan, const Bindings& bindings);

class OpContext {
 public:
  OpContext(const Plan& plan, const Node& node, const Bindings& bindings, void* stream = nullptr)
      : plan_(plan), node_(node), bindings_(bindings), stream_(stream) {}

  /// Pointers to the first element. The handle must be among the node's accesses with that mode, and T its
  /// type.
  template <class T>
  const T* in(Handle h) const {
    return reinterpret_cast<const T*>(address(h, Mode::in, dtype_of<T>::value));
  }
  template <class T>
  T* out(Handle h) const {
    return reinterpret_cast<T*>(address(h, Mode::out, dtype_of<T>::value));
  }
  template <class T>
  T* inout(Handle h) const {
    return reinterpret_cast<T*>(address(h, Mode::inout, dtype_of<T>::value));
  }
  /// The same without a type, for ops that move bytes.
  const std::byte* in_bytes(Handle h) const { return address(h, Mode::in, dtype(h)); }
  std::byte* out_bytes(Handle h) const { return address(h, Mode::out, dtype(h)); }
  std::byte* inout_bytes(Handle h) const { return address(h, Mode::inout, dtype(h)); }

  const Shape& shape(Handle h) const { return plan_.program().shape(h); }
  DType dtype(Handle h) const { return plan_.program().dtype(h); }
  const Node& node() const { return node_; }
  /// The native stream (cudaStream_t); null on the CPU.
  void* stream() const { return stream_; }

 private:
  std::byte* address(Handle h, Mode mode, DType type) const;

  const Plan& plan_;
  const Node& node_;
  const Bindings& bindings_;
  void* stream_;
};

}  // namespace moesaic
