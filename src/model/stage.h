#pragma once
// A pipeline stage on one rank: its parameters, gradients and activations in memory, its layers as plans, and the passes
// that replay them. One stage is the whole model for now (pp = 1).
#include <memory>
#include <string>
#include <vector>

#include "device/device.h"
#include "model/stage_programs.h"

namespace moesaic {

class Stage {
 public:
  /// Records the programs and takes all memory from device.arena(): weights and gradients (zero), router biases, kept
  /// activations of `num_in_flight` micro-batches, workspace. `spec` and what it refers to, `device` and `config`'s
  /// meaning outlive the stage.
  Stage(const LayerSpec& spec, ParameterTable table, Device& device, int64_t num_in_flight);

  /// Records the programs anew for another rows bound: activations and workspace are given back and taken again;
  /// weights, gradients, router biases stay.
  void rebuild(const LayerSpec& spec);

  /// Fills the weights with their first values.
  void initialize(uint64_t seed);

  /// Runs a micro-batch in memory place `place` (of num_in_flight). The batch was written to batch_memory(place).
  /// The first micro-batch of a step writes all gradients, the later ones add to them.
  void forward(int64_t place, bool first);   // with the head: loss, d_stream and the head's gradient
  void backward(int64_t place, bool first);  // to the embedding
  /// Layers and head without gradients: adds to evaluation_scalars(). Uses the memory of place 0.
  void evaluate();
  /// The same, but leaves all logits [T, V] f32 in the returned memory.
  const std::byte* logits();

  const LayerSpec& spec() const { return spec_; }
  const ParameterTable& table() const { return table_; }
  const StagePrograms& programs() const { return *programs_; }
  Device& device() { return device_; }

  std::byte* weights(int32_t bucket) const { return weights_[static_cast<size_t>(bucket)]; }
  float* grads(int32_t bucket) const { return grads_[static_cast<size_t>(bucket)]; }
  std::byte* batch_memory(int64_t place) const { return batches_[static_cast<size_t>(place)]; }
  /// LayerStats of all layers, one after the other, of the training step.
  std::byte* stats() const { return stats_; }
  int64_t stats_bytes() const { return LayerStats::bytes(spec_.model.num_experts) * spec_.model.num_layers; }
  std::byte* step_scalars() const { return step_; }
  /// The same two for evaluation, so that it counts nowhere else.
  std::byte* evaluation_stats() const { return evaluation_stats_; }
  std::byte* evaluation_scalars() const { return evaluation_step_; }
  float* router_bias(int64_t layer) const { return bias_ + layer * spec_.model.num_experts; }

 private:
  void allocate_activations();
  /// Addresses of the slots for a layer (or an end), in order of StageSlots.
  Bindings bind(int32_t bucket, int32_t second_bucket, int64_t layer, int64_t place, bool evaluation) const;
  Bindings bind_layer(int64_t layer, int64_t place, bool evaluation) const;
  Bindings bind_embedding(int64_t place, bool evaluation) const;
  Bindings bind_head(int64_t place, bool evaluation) const;
  void run_layers(int64_t place, bool evaluation);

  LayerSpec spec_;
  ParameterTable table_;
  Device& device_;
  int64_t num_in_flight_;
  std::unique_ptr<StagePrograms> programs_;
  std::vector<std::byte*> weights_;            // [bucket]
  std::vector<float*> grads_;                  // [bucket]
  std::vector<std::byte*> batches_;            // [place]
  std::vector<std::vector<std::byte*>> kept_;  // [place][layer]; the last is the head's input
  std::vector<std::byte*> d_stream_;           // [place]
  std::byte *workspace_ = nullptr, *d_recv_ = nullptr, *stats_ = nullptr, *step_ = nullptr;
  std::byte *evaluation_stats_ = nullptr, *evaluation_step_ = nullptr, *logits_ = nullptr;
  float* bias_ = nullptr;
};

}  // namespace moesaic
