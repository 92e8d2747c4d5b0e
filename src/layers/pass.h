#pragma once
// What the layers share while one pass over one layer is recorded.
#include <functional>
#include <string>
#include <vector>

#include "layers/layer_spec.h"
#include "layers/stage_slots.h"
#include "ops/elementwise/elementwise.h"
#include "tensor/activations.h"

namespace moesaic {

/// Weight-gradient ops that wait for the place where they are recorded: behind a communication op that they can hide, or
/// (later, split schedules) in the schedule's weight half.
class WeightQueue {
 public:
  void push(std::function<void()> record) { waiting_.push_back(std::move(record)); }
  void drain() {
    for (const auto& record : waiting_) record();
    waiting_.clear();
  }
  bool empty() const { return waiting_.empty(); }

 private:
  std::vector<std::function<void()>> waiting_;
};

/// One pass over one layer. Everything it refers to outlives it.
struct Pass {
  Pass(Program& program, const LayerSpec& layer_spec, const ParameterTable& parameter_table,
       std::string layer_prefix, const ActivationTable& activation_table, Rebuild policy, bool evaluation,
       bool adds_gradients = true)
      : g(program),
        spec(layer_spec),
        table(parameter_table),
        prefix(std::move(layer_prefix)),
        slots(program),
        acts(evaluation ? Activations::evaluation(program, activation_table, slots.kept)
                        : Activations(program, activation_table, slots.kept, policy)),
        training(!evaluation),
        adds(adds_gradients) {}

  /// A device tensor of this layer ("attention.qkv") and its gradient (f32).
  Handle weight(const std::string& name, Shape shape) {
    return parameter(name, shape, slots.weights, slots.weights2, spec.dtype, "");
  }
  Handle grad(const std::string& name, Shape shape) {
    return parameter(name, shape, slots.grads, slots.grads2, DType::f32, "d_");
  }
  /// The gradient for an op that only adds to it: cleared first in the first micro-batch.
  Handle added_grad(const std::string& name, Shape shape) {
    const Handle h = grad(name, shape);
    if (!adds) ops::zero(g, Stream::compute, h);
    return h;
  }
  /// The bias of a norm, and its gradient; absent where norms are RMSNorms.
  Handle norm_bias(const std::string& name) {
    return spec.model.layer_norm ? weight(name + "_bias", {spec.model.hidden}) : Handle{};
  }
  Handle added_norm_bias_grad(const std::string& name) {
    return spec.model.layer_norm ? added_grad(name + "_bias", {spec.model.hidden}) : Handle{};
  }
  Handle temp(const std::string& name, Shape shape) { return g.temp(name, spec.dtype, shape); }

  Program& g;
  const LayerSpec& spec;
  const ParameterTable& table;
  std::string prefix;  // "layers.0.": of the layer whose rows stand for all of its kind
  StageSlots slots;
  Activations acts;
  bool training;
  bool adds;  // gradients add to those of earlier micro-batches; false in the first one, which finds old ones
  WeightQueue queue;

 private:
  Handle parameter(const std::string& name, Shape shape, Slot dense, Slot experts, DType type,
                   const char* mark);
};

/// The gain of a norm over D, and with model.layer_norm its bias, "<name>_bias".
void add_norm_parameters(ParameterTable& table, const ModelConfig& model, const std::string& name);
/// A bias: zero at first, not decayed.
void add_bias_parameter(ParameterTable& table, const std::string& name, int64_t width,
                        const std::string& device_tensor);

}  // namespace moesaic
