#include "ops/swiglu/swiglu.h"

#include "ops/op.h"
#include "ops/swiglu/swiglu_bodies.h"

namespace moesaic::ops {
namespace {

/// `wide` has rows of 2 F, the others rows of F; all of one type.
void check_rows(const Program& g, std::initializer_list<Handle> wide, std::initializer_list<Handle> narrow) {
  const Handle first = *wide.begin();
  const int64_t rows = g.shape(first).rows(), width = g.shape(first)[-1];
  MOESAIC_CHECK(is_float(g.dtype(first)) && width % 2 == 0);
  for (Handle h : wide)
    MOESAIC_CHECK(g.dtype(h) == g.dtype(first) && g.shape(h).rows() == rows && g.shape(h)[-1] == width);
  for (Handle h : narrow)
    MOESAIC_CHECK(
        !h || (g.dtype(h) == g.dtype(first) && g.shape(h).rows() == rows && 2 * g.shape(h)[-1] == width),
        "{} beside {}", g.shape(h).str(), g.shape(first).str());
}

template <class Args>
void check_weights(const Program& g, int64_t rows, const Args& args) {
  MOESAIC_CHECK(static_cast<bool>(args.weights) == static_cast<bool>(args.slots));
  MOESAIC_CHECK(!args.weights || g.dtype(args.weights) == DType::f32);
  MOESAIC_CHECK(!args.slots || (g.dtype(args.slots) == DType::i32 && g.shape(args.slots).numel() == rows));
  MOESAIC_CHECK(!args.offsets || g.dtype(args.offsets) == DType::i32);
}

}  // namespace

void swiglu_forward(Program& g, Stream stream, const SwigluForward& args) {
  check_rows(g, {args.h}, {args.y});
  check_weights(g, g.shape(args.h).rows(), args);
  g.add({.name = "swiglu_forward",
         .streams = {stream},
         .accesses = accesses({in(args.h), in(args.weights), in(args.slots), in(args.offsets), out(args.y)}),
         .cost = {.operations =
                      (args.weights ? 6 : 5) * args.expected_rows * static_cast<double>(g.shape(args.y)[-1]),
                  .bytes = args.expected_rows * row_bytes(g, {args.h, args.y}, {args.slots, args.weights}) +
                           count_bytes(args.offsets)},
         .run = body(g, swiglu_forward_cpu, swiglu_forward_cuda, args)});
}

void swiglu_backward(Program& g, Stream stream, const SwigluBackward& args) {
  check_rows(g, {args.h, args.dh}, {args.dy, args.y});
  check_weights(g, g.shape(args.h).rows(), args);
  MOESAIC_CHECK(static_cast<bool>(args.weights) == static_cast<bool>(args.d_weights));
  MOESAIC_CHECK(!args.d_weights || (g.dtype(args.d_weights) == DType::f32 &&
                                    g.shape(args.d_weights).numel() == g.shape(args.weights).numel()));
  g.add({.name = "swiglu_backward",
         .streams = {stream},
         .accesses = accesses({in(args.dy), in(args.h), in(args.weights), in(args.slots), in(args.offsets),
                               out(args.dh), out(args.d_weights), out(args.y)}),
         .cost = {.operations = (11 + (args.weights ? 4 : 0) + (args.y ? 1 : 0)) * args.expected_rows *
                                static_cast<double>(g.shape(args.dy)[-1]),
                  .bytes = args.expected_rows *
                               row_bytes(g, {args.dy, args.h, args.dh, args.y}, {args.slots, args.weights}) +
                           bytes_of(g, {args.d_weights}) + count_bytes(args.offsets)},
         .run = body(g, swiglu_backward_cpu, swiglu_backward_cuda, args)});
}

}  // namespace moesaic::ops
