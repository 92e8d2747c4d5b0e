#pragma once
// What every op has: arguments as a struct of handles, a function that checks shapes, states the cost and
// records one node, and a body per device. An op's folder holds
//   <op>.h        the contract: shapes, rounding points, formulas, cost
//   <op>.cpp      checks, cost, recording
//   <op>_bodies.h the bodies' declarations, one per device
//   <op>_cpu.cpp  the readable reference, FP32 or BF16
//   <op>_cuda.cu  the kernel
// and a test in tests/unit/ops/cost_*_test.cpp that counts its cost a second time.
// Accumulation: activation gradients are written (=), parameter gradients are added to (+=), always FP32.
// Numerics: BF16 tensors are widened to FP32, computed in FP32, and rounded once when stored, unless the
// contract says otherwise. An optional handle is one that may be left default (Handle{}).
#include <initializer_list>

#include "base/check.h"
#include "device/op_context.h"
#include "device/program.h"

namespace moesaic::ops {

/// The body for the program's device. Devices without data get an empty one.
template <class Args>
Run body(const Program& g, void (*cpu)(const OpContext&, const Args&),
         void (*cuda)(const OpContext&, const Args&), const Args& args) {
  if (g.device() == DeviceKind::cpu) return [cpu, args](const OpContext& c) { cpu(c, args); };
  if (g.device() == DeviceKind::cuda) return [cuda, args](const OpContext& c) { cuda(c, args); };
  return [](const OpContext&) {};
}

/// Device memory that a CUDA body works in, planned like any temp: args.scratch = scratch(g, bytes), and out(args.scratch)
/// among the accesses. Absent on other devices (their bodies need none), and when bytes is 0.
inline Handle scratch(Program& g, const char* op, int64_t bytes) {
  if (g.device() != DeviceKind::cuda || bytes == 0) return {};
  return g.temp(std::string("scratch of ") + op, DType::u8, {bytes});
}

/// Bytes of these tensors together, absent ones left out: what an op that reads or writes each once must
/// move. An updated one is named twice.
inline double bytes_of(const Program& g, std::initializer_list<Handle> handles) {
  double sum = 0;
  for (Handle h : handles)
    if (h) sum += static_cast<double>(g.info(h).bytes());
  return sum;
}

/// Bytes of one row of each of these matrices together, absent ones left out; maps [R] count as one column.
inline double row_bytes(const Program& g, std::initializer_list<Handle> matrices,
                        std::initializer_list<Handle> maps = {}) {
  double sum = 0;
  for (Handle h : matrices)
    if (h) sum += static_cast<double>(g.shape(h)[-1] * size_of(g.dtype(h)));
  for (Handle h : maps)
    if (h) sum += static_cast<double>(size_of(g.dtype(h)));
  return sum;
}

/// Of a tensor that holds the number of rows in its last element nothing else is read.
inline double count_bytes(Handle h) {
  return h ? static_cast<double>(size_of(DType::i32)) : 0;
}

/// Elements, as a number to calculate costs with.
inline double elements(const Program& g, Handle h) {
  return h ? static_cast<double>(g.shape(h).numel()) : 0;
}

/// in/out/inout lists with absent handles left out: accesses({in(a), out(b)}).
inline std::vector<Access> accesses(std::initializer_list<Access> list) {
  std::vector<Access> present;
  for (const Access& access : list)
    if (access.handle) present.push_back(access);
  return present;
}

inline bool is_float(DType type) {
  return type == DType::f32 || type == DType::bf16;
}

}  // namespace moesaic::ops
