#pragma once
// The plans of a stage: each kind of layer recorded once forward, backward and for evaluation, and the two ends.
#include <memory>

#include "device/plan.h"
#include "layers/layer_spec.h"
#include "layers/stage_slots.h"
#include "tensor/activations.h"
#include "tensor/parameter_table.h"

namespace moesaic {

/// One kind of layer (MoE, or leading dense).
struct LayerPrograms {
  ActivationTable activations;
  std::unique_ptr<Plan> forward, backward, evaluate;
  std::unique_ptr<Plan>
      first_backward;  // of a step's first micro-batch: writes gradients instead of adding to them
};

struct StagePrograms {
  StagePrograms(const LayerSpec& spec, const ParameterTable& table, DeviceKind device);

  const LayerPrograms& layer(const ModelConfig& model, int64_t index) const;
  /// Workspace that the largest plan needs.
  int64_t workspace_bytes() const;
  /// All plans, for printing and checking.
  std::vector<const Plan*> plans() const;

  std::unique_ptr<LayerPrograms> moe, dense;  // absent when the model has no such layer
  std::unique_ptr<Plan> embed, embed_backward, first_embed_backward;
  std::unique_ptr<Plan> head, first_head;  // final norm, loss and their gradients -> d_stream
  std::unique_ptr<Plan> head_evaluate;     // final norm and loss
  std::unique_ptr<Plan> logits;            // final norm and all logits [T, V] f32 in slot `next`
};

}  // namespace moesaic
