#pragma once
// What the bodies of ops share on every device: optional tensors.
#include "device/op_context.h"

namespace moesaic::ops {

/// Pointers of optional handles; null when absent.
template <class T>
const T* in_or_null(const OpContext& c, Handle h) {
  return h ? c.in<T>(h) : nullptr;
}
template <class T>
T* out_or_null(const OpContext& c, Handle h) {
  return h ? c.out<T>(h) : nullptr;
}
template <class T>
T* inout_or_null(const OpContext& c, Handle h) {
  return h ? c.inout<T>(h) : nullptr;
}

}  // namespace moesaic::ops
