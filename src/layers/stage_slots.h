#pragma once
// The memory that every program of a stage is bound to, in one fixed order of slots, so that a program recorded once can be
// replayed for any layer and any micro-batch: only the addresses change.
#include <array>
#include <cstdint>
#include <string>

#include "layers/layer_spec.h"
#include "tensor/parameter_table.h"

namespace moesaic {

/// Slots by index; 0 is the workspace.
struct StageSlots {
  explicit StageSlots(Program& g)
      : weights(g.slot("weights")),
        grads(g.slot("gradients")),
        weights2(g.slot("weights 2")),
        grads2(g.slot("gradients 2")),
        kept(g.slot("kept")),
        next(g.slot("next")),
        d_stream(g.slot("d_stream")),
        batch(g.slot("batch")),
        stats(g.slot("layer stats")),
        step(g.slot("step")),
        bias(g.slot("router bias")),
        d_recv(g.slot("received gradient")) {}
  Slot weights, grads;    // the layer's dense bucket (embedding, head: theirs)
  Slot weights2, grads2;  // its expert bucket (head: the embedding's, when tied)
  Slot kept;              // its kept activations; its input [T, D] comes first
  Slot next;              // where its output [T, D] goes: the next layer's kept activations
  Slot d_stream;          // gradient of the residual stream [T, D], in place
  Slot batch;             // the micro-batch: BatchLayout
  Slot stats;             // this layer's statistics of the step: LayerStats
  Slot step;              // numbers of the step: StepScalars
  Slot bias;              // router bias [E] f32
  Slot
      d_recv;  // receive buffer of output gradients [rows, D]; apart from the workspace, so that a layer's can
               // arrive while the layer above still works there
  static constexpr size_t kCount = 13;
};

/// A micro-batch on this rank, all i32, one array after the other.
class BatchLayout {
 public:
  explicit BatchLayout(const LayerSpec& spec);
  Handle tokens(Program& g, const StageSlots& slots) const { return at(g, slots, 0); }
  Handle targets(Program& g, const StageSlots& slots) const { return at(g, slots, 1); }  // -1: not counted
  Handle positions(Program& g, const StageSlots& slots) const { return at(g, slots, 2); }
  Handle scope(Program& g, const StageSlots& slots) const {
    return at(g, slots, 3);
  }  // balance scope of each token
  Handle doc_start(Program& g, const StageSlots& slots) const {
    return at(g, slots, 4);
  }  // [attention_batch, S]
  Handle all_scope(Program& g, const StageSlots& slots) const {
    return at(g, slots, 5);
  }  // of the scope group's tokens, in order of rank
  Handle all_order(Program& g, const StageSlots& slots) const {
    return at(g, slots, 6);
  }  // those tokens in order of sequence, then position, whatever rank holds them
  int64_t offset(int array) const { return offsets_[static_cast<size_t>(array)]; }  // in elements
  int64_t size(int array) const { return sizes_[static_cast<size_t>(array)]; }
  int64_t bytes() const { return offsets_.back() * 4; }
  static constexpr int kArrays = 7;

 private:
  Handle at(Program& g, const StageSlots& slots, int array) const;
  std::array<int64_t, kArrays> sizes_{};
  std::array<int64_t, kArrays + 1> offsets_{};
};

/// A layer's statistics, added up over a step.
struct LayerStats {
  static constexpr int64_t kAux = 0, kZ = 4, kDropped = 8, kOverflow = 12, kRows = 16,
                           kCounts = 32;  // bytes
  static int64_t bytes(int64_t num_experts) { return round_up(kCounts + 4 * num_experts, 256); }
  LayerStats(Program& g, const StageSlots& slots, int64_t num_experts)
      : aux_loss(g.external(slots.stats, kAux, "aux_loss", DType::f32, {1})),
        z_loss(g.external(slots.stats, kZ, "z_loss", DType::f32, {1})),
        dropped(g.external(slots.stats, kDropped, "dropped", DType::i32, {1})),
        overflow(g.external(slots.stats, kOverflow, "overflow", DType::i32, {1})),
        rows(g.external(slots.stats, kRows, "rows", DType::i32, {1})),
        counts(g.external(slots.stats, kCounts, "expert_counts", DType::i32, {num_experts})) {}
  Handle aux_loss,
      z_loss;  // f32: of this rank's scopes (every rank of a scope's group holds the whole scope's aux loss)
  Handle dropped;   // i32: rows that capacity dropped
  Handle overflow;  // i32: most rows asked for above the bound; 0 = none
  Handle rows;      // i32: rows of this rank's experts; counted only where layout.on_overflow is drop
  Handle counts;    // i32 [E]: tokens that chose each expert, this rank's tokens
};

/// Numbers of a step that live on the device.
struct StepScalars {
  static constexpr int64_t kBytes = 256;
  static constexpr int64_t kLossScale = 0, kLearning = 4, kCounted = 16;  // given by the host
  static constexpr int64_t kLoss = 32, kSeen = 36, kGradNorm = 40, kClipScale = 44,
                           kOk = 48;  // made by the step
  StepScalars(Program& g, Slot step)
      : loss_scale(g.external(step, kLossScale, "loss_scale", DType::f32, {1})),
        learning(g.external(step, kLearning, "learning", DType::f32, {3})),
        counted(g.external(step, kCounted, "counted", DType::i32, {1})),
        loss(g.external(step, kLoss, "loss", DType::f32, {1})),
        seen(g.external(step, kSeen, "seen", DType::i32, {1})),
        grad_norm(g.external(step, kGradNorm, "grad_norm", DType::f32, {1})),
        clip_scale(g.external(step, kClipScale, "clip_scale", DType::f32, {1})),
        ok(g.external(step, kOk, "ok", DType::i32, {1})) {}
  Handle loss_scale;  // 1 / counted tokens of the step, all ranks and micro-batches
  Handle learning;    // learning rate and the two bias corrections (ops/optimizer)
  Handle counted;     // counted tokens of the step, all ranks
  Handle loss, seen;  // sum of losses, counted tokens, of this rank
  Handle grad_norm, clip_scale, ok;
};

}  // namespace moesaic
