#include "ops/bias/bias.h"

#include "ops/bias/bias_bodies.h"
#include "ops/op.h"

namespace moesaic::ops {
namespace {

/// Validation refuses models with biases on a GPU, so there is no other body.
template <class Args>
Run cpu_body(const Program& g, void (*cpu)(const OpContext&, const Args&), const Args& args) {
  MOESAIC_CHECK(g.device() != DeviceKind::cuda, "biases have no CUDA body yet");
  return body(g, cpu, cpu, args);
}

}  // namespace

void add_bias(Program& g, Stream stream, Handle x, Handle bias) {
  MOESAIC_CHECK(is_float(g.dtype(x)) && is_float(g.dtype(bias)));
  MOESAIC_CHECK(g.shape(bias).numel() == g.shape(x)[-1], "{} to rows of {}", g.shape(bias).str(),
                g.shape(x).str());
  g.add({.name = "add_bias",
         .streams = {stream},
         .accesses = {inout(x), in(bias)},
         .cost = {.operations = static_cast<double>(g.shape(x).numel()), .bytes = bytes_of(g, {x, x, bias})},
         .run = cpu_body(g, add_bias_cpu, AddBias{x, bias})});
}

void bias_backward(Program& g, Stream stream, Handle dy, Handle d_bias) {
  MOESAIC_CHECK(is_float(g.dtype(dy)) && g.dtype(d_bias) == DType::f32);
  MOESAIC_CHECK(g.shape(d_bias).numel() == g.shape(dy)[-1], "{} from rows of {}", g.shape(d_bias).str(),
                g.shape(dy).str());
  g.add({.name = "bias_backward",
         .streams = {stream},
         .accesses = {in(dy), inout(d_bias)},
         .cost = {.operations = static_cast<double>(g.shape(dy).numel()),
                  .bytes = bytes_of(g, {dy, d_bias, d_bias})},
         .run = cpu_body(g, bias_backward_cpu, BiasBackward{dy, d_bias})});
}

}  // namespace moesaic::ops
