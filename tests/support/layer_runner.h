#pragma once
// One MoE layer of one rank outside of a stage: its plans, and memory of its own to replay them on, so that a test can change
// a plan first.
#include <cstring>
#include <memory>
#include <vector>

#include "launch/launch.h"
#include "model/parameters.h"
#include "model/stage_programs.h"
#include "support/initial_values.h"
#include "support/layout_runner.h"

namespace moesaic::test {

struct LayerResult {
  std::vector<float> next;      // the layer's output [T, D]
  std::vector<float> all;       // output, gradients of input and weights, statistics
  std::vector<std::byte> kept;  // kept activations
};

class LayerRunner {
 public:
  LayerRunner(const Config& config, Rank& rank)
      : mesh_(config.layout),
        n_(rank.communicator(mesh_.group(Axis::n, rank.rank))),
        e_(rank.communicator(mesh_.group(Axis::e, rank.rank))),
        scope_(rank.communicator(mesh_.group(scope_axis(config.balance.scope), rank.rank))),
        spec_(make_layer_spec(config, mesh_, rank.rank, {n_.get(), e_.get(), scope_.get()},
                              config.layout.rows_factor)),
        table_(make_parameters(config.model, mesh_, rank.rank, spec_.placement)),
        programs_(spec_, table_, DeviceKind::cpu),
        rank_(static_cast<uint64_t>(rank.rank)) {}

  const Plan& forward() const { return *programs_.moe->forward; }
  const Plan& backward() const { return *programs_.moe->backward; }

  /// A kept activation.
  template <class T>
  std::vector<T> activation(const LayerResult& result, const std::string& name) const {
    const ActivationTable& table = programs_.moe->activations;
    std::vector<T> values(static_cast<size_t>(table.row(name).shape.numel()));
    std::memcpy(values.data(), result.kept.data() + table.offset(name, spec_.layout.rebuild),
                values.size() * sizeof(T));
    return values;
  }

  /// Layer 0 forward and backward by these plans on a device of its own.
  LayerResult run(const Plan& forward, const Plan& backward, const CpuOptions& options) {
    const auto device = make_cpu_device(options);
    Memory m(*this, forward, backward);
    const Bindings bindings{m.workspace.data(), m.weights.data(), m.grads.data(), m.experts.data(),
                            m.d_experts.data(), m.kept.data(),    m.next.data(),  m.d_stream.data(),
                            m.batch.data(),     m.stats.data(),   m.step.data(),  m.bias.data(),
                            m.d_recv.data()};
    device->replay(forward, bindings);
    device->replay(backward, bindings);
    device->synchronize();
    LayerResult result;
    for (const auto* part : {&m.next, &m.d_stream, &m.grads, &m.d_experts, &m.stats}) {
      const auto* values = reinterpret_cast<const float*>(part->data());
      auto& to = result.all;
      to.insert(to.end(), values, values + part->size() / 4);
      if (part == &m.next) result.next = to;
    }
    result.kept = std::move(m.kept);
    return result;
  }

 private:
  using Bytes = std::vector<std::byte>;

  struct Memory {
    Memory(const LayerRunner& layer, const Plan& forward, const Plan& backward) {
      const LayerSpec& s = layer.spec_;
      const auto& buckets = layer.table_.buckets();
      const auto dense = static_cast<size_t>(layer.table_.bucket("layers.0")),
                 expert = static_cast<size_t>(layer.table_.bucket("layers.0.experts"));
      const int64_t stream = 4 * s.T * s.model.hidden;
      const auto make = [](int64_t bytes) { return Bytes(static_cast<size_t>(bytes)); };
      workspace = make(std::max(forward.workspace_bytes(), backward.workspace_bytes()));
      weights = make(4 * buckets[dense].padded), grads = make(4 * buckets[dense].padded);
      experts = make(4 * buckets[expert].padded), d_experts = make(4 * buckets[expert].padded);
      kept = make(layer.programs_.moe->activations.bytes(s.layout.rebuild));
      next = make(stream), d_stream = make(stream);
      const BatchLayout layout(s);
      batch = make(layout.bytes());
      stats = make(LayerStats::bytes(s.model.num_experts));
      step = make(StepScalars::kBytes);
      bias = make(4 * s.model.num_experts);
      d_recv = make(s.e > 1 ? 4 * s.max_recv * s.model.hidden : 0);
      for (const ParameterRow& row : layer.table_.rows()) {
        const auto bucket = static_cast<size_t>(row.bucket);
        if (bucket != dense && bucket != expert) continue;
        auto* to = reinterpret_cast<float*>((bucket == dense ? weights : experts).data()) + row.offset;
        initial_values(row, 3, 0, row.shape.numel(), to);
      }
      const auto fill = [&](Bytes& memory, uint64_t seed) {
        auto* values = reinterpret_cast<float*>(memory.data());
        for (int64_t i = 0; i < stream / 4; ++i)
          values[i] = random_normal(seed, layer.rank_, static_cast<uint64_t>(i));
      };
      fill(kept, 1);  // the layer's input comes first
      fill(d_stream, 2);
      auto* ints = reinterpret_cast<int32_t*>(batch.data());
      for (int64_t t = 0; t < s.T; ++t) {
        ints[layout.offset(2) + t] = static_cast<int32_t>(s.n_rank * s.S / s.n + t % (s.S / s.n));
        ints[layout.offset(3) + t] = static_cast<int32_t>(t / (s.S / s.n));
      }
      for (int64_t t = 0; t < layout.size(6); ++t) ints[layout.offset(6) + t] = static_cast<int32_t>(t);
    }
    Bytes workspace, weights, grads, experts, d_experts, kept, next, d_stream, batch, stats, step, bias,
        d_recv;
  };

  Mesh mesh_;
  std::unique_ptr<Communicator> n_, e_, scope_;
  LayerSpec spec_;
  ParameterTable table_;
  StagePrograms programs_;
  uint64_t rank_;
};

}  // namespace moesaic::test
