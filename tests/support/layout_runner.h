#pragma once
// Runs a configuration for some steps on thread ranks and brings back losses, gradients and weights by logical name, so that
// any layout can be compared with one rank.
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "support/op_runner.h"
#include "train/session.h"

namespace moesaic::test {

using Tensors = std::map<std::string, std::vector<float>>;  // by logical name, whole

struct Outcome {
  std::vector<StepResult> steps;
  int64_t num_repeats = 0;          // steps done again because routing passed the rows bound
  Tensors first_gradients;          // of the first step
  Tensors gradients;                // of the last step
  Tensors weights;                  // after it
  Tensors updates;                  // weights - first weights
  Tensors biases;                   // router biases of each layer after it
  Session::Evaluation evaluation;   // after it
  std::vector<std::string> unlike;  // weights and biases of which two ranks hold different bits
};

/// What a test may put in its own way. Called on every rank.
struct Around {
  int64_t evaluate = 0;                    // sequences of an evaluation after the last step
  BatchSource source;                      // instead of random_batch
  std::function<void(Session&)> prepare;   // after initialize()
  std::function<void(Session&)> between;   // before each step but the first
  std::function<void(Session&)> finished;  // after the last step; one rank at a time
};

/// Where the suites run: on the CPU, or on the GPU when the environment has MOESAIC_TEST_DEVICE=cuda.
inline DeviceKind test_device() {
  const char* value = std::getenv("MOESAIC_TEST_DEVICE");
  return value != nullptr && std::string(value) == "cuda" ? DeviceKind::cuda : DeviceKind::cpu;
}

/// How a CPU device replays there: in random order when the environment has MOESAIC_TEST_REPLAY=chaos.
inline ReplayMode test_replay() {
  const char* value = std::getenv("MOESAIC_TEST_REPLAY");
  return value != nullptr && std::string(value) == "chaos" ? ReplayMode::chaos : ReplayMode::inline_;
}

/// A model small enough to run in milliseconds: set-up Z of the bug reports.
inline Config small_config() {
  Config c;
  c.model.name = "z";
  c.model.num_layers = 2;
  c.model.hidden = 32;
  c.model.num_heads = 8;
  c.model.num_kv_heads = 2;
  c.model.head_dim = 8;
  c.model.expert_ffn = 24;
  c.model.num_experts = 8;
  c.model.top_k = 2;
  c.model.vocab = 67;
  c.model.init_std = 0.1;
  c.train.seq_len = 16;
  c.train.micro_batch = 8;
  c.train.global_batch = 8;
  c.train.seed = 3;
  c.optim.kind = OptimizerKind::sgd;
  c.optim.weight_decay = 0;
  c.optim.clip = 0;
  c.run.threads = 1;
  c.run.device = test_device();
  c.run.replay = test_replay();
  c.run.comm_timeout = c.run.join_timeout = 30;
  return c;
}

/// Random tokens, the same for a position whatever asks; a tenth of the targets do not count. `packed`: a document starts
/// at about every sixth token: its positions start at 0, and the target before it does not count.
inline Batch random_batch(std::span<const int64_t> positions, int64_t S, int64_t vocab, bool packed = false) {
  Batch batch;
  batch.num_sequences = static_cast<int64_t>(positions.size());
  for (int64_t p : positions)
    for (int64_t s = 0; s < S; ++s) {
      const auto at = static_cast<uint64_t>(s);
      batch.tokens.push_back(
          static_cast<int32_t>(random_below(static_cast<uint64_t>(vocab), 5, static_cast<uint64_t>(p), at)));
      const bool counts = random_uniform(6, static_cast<uint64_t>(p), at) > 0.1f;
      batch.targets.push_back(counts ? static_cast<int32_t>(random_below(static_cast<uint64_t>(vocab), 7,
                                                                         static_cast<uint64_t>(p), at))
                                     : -1);
      batch.num_counted += counts;
      const bool starts = s == 0 || (packed && random_uniform(8, static_cast<uint64_t>(p), at) < 1.0f / 6);
      if (starts && s > 0 && batch.targets[batch.targets.size() - 2] >= 0)
        batch.targets[batch.targets.size() - 2] = -1, --batch.num_counted;
      batch.positions.push_back(starts ? 0 : batch.positions.back() + 1);
      batch.doc_start.push_back(static_cast<int32_t>(s) - batch.positions.back());
    }
  return batch;
}

/// Adds a rank's part of each logical tensor to `into` (whole tensors, zero where nobody has written).
inline void add_part(Tensors& into, const ParameterRow& row, int64_t begin,
                     const std::vector<float>& values) {
  auto& whole = into[row.name];
  whole.resize(static_cast<size_t>(row.shape.numel()));
  std::copy(values.begin(), values.end(), whole.begin() + begin);
}

/// Equal to the last bit (NaN equals NaN).
inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), 4 * a.size()) == 0);
}

inline std::vector<float> fetch_floats(Device& device, const std::byte* memory, DType type, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  if (type == DType::f32) {
    device.fetch(values.data(), memory, 4 * count);
  } else {
    std::vector<bf16> narrow(values.size());
    device.fetch(narrow.data(), memory, 2 * count);
    for (size_t i = 0; i < values.size(); ++i) values[i] = float(narrow[i]);
  }
  return values;
}

/// The gradient shards of a session, by logical name.
inline void collect_gradients(Session& session, Tensors& into) {
  const ParameterTable& table = session.stage().table();
  for (const ParameterRow& row : table.rows()) {
    const Bucket& bucket = table.buckets()[static_cast<size_t>(row.bucket)];
    const int64_t first = session.reducer().shard_index(row.bucket) * bucket.shard();
    const int64_t begin = std::max(row.offset, first),
                  end = std::min(row.offset + row.shape.numel(), first + bucket.shard());
    if (begin >= end) continue;
    add_part(into, row, begin - row.offset,
             fetch_floats(session.stage().device(),
                          reinterpret_cast<const std::byte*>(session.stage().grads(row.bucket) + begin),
                          DType::f32, end - begin));
  }
}

/// The whole weights that a rank holds; `unlike` gets the names of those that another rank holds with other bits.
inline void collect_weights(Session& session, Tensors& into, std::vector<std::string>* unlike = nullptr) {
  const DType type = session.stage().spec().dtype;
  for (const ParameterRow& row : session.stage().table().rows()) {
    std::vector<float> values = fetch_floats(session.stage().device(),
                                             session.stage().weights(row.bucket) + row.offset * size_of(type),
                                             type, row.shape.numel());
    const auto known = into.find(row.name);
    if (unlike && known != into.end() && !same_bits(known->second, values)) unlike->push_back(row.name);
    into[row.name] = std::move(values);
  }
}

inline void collect_biases(Session& session, Outcome& outcome) {
  const ModelConfig& m = session.stage().spec().model;
  for (int64_t i = 0; i < m.num_layers; ++i) {
    std::vector<float> values(static_cast<size_t>(m.num_experts));
    session.stage().device().fetch(values.data(), session.stage().router_bias(i), 4 * m.num_experts);
    const std::string name = fmt::format("router bias {}", i);
    const auto known = outcome.biases.find(name);
    if (known != outcome.biases.end() && !same_bits(known->second, values)) outcome.unlike.push_back(name);
    outcome.biases[name] = std::move(values);
  }
}

inline Outcome run_layout(const Config& config, int64_t num_steps, const Around& around = {}) {
  Outcome outcome;
  std::mutex mutex;
  Tensors before;
  run_ranks(config.run, Mesh(config.layout).world_size(), [&](Rank& rank) {
    Session session(config, rank);
    session.initialize();
    if (around.prepare) around.prepare(session);
    rank.device->synchronize();  // a rank must not wait for the others with the lock taken
    {
      const std::lock_guard lock(mutex);
      collect_weights(session, before, &outcome.unlike);
    }
    const BatchSource source = around.source ? around.source : [&](std::span<const int64_t> positions) {
      return random_batch(positions, config.train.seq_len, config.model.vocab);
    };
    for (int64_t i = 0; i < num_steps; ++i) {
      if (i > 0 && around.between) around.between(session);
      StepResult result = session.step(source, i * config.train.global_batch, config.optim.lr);
      while (result.max_rows_asked > 0 && config.layout.on_overflow == OverflowPolicy::repeat) {
        if (rank.rank == 0) ++outcome.num_repeats;
        session.grow_rows(result.max_rows_asked);
        result = session.step(source, i * config.train.global_batch, config.optim.lr);
      }
      if (rank.rank == 0) outcome.steps.push_back(result);
      if (i > 0) continue;
      const std::lock_guard lock(mutex);
      collect_gradients(session, outcome.first_gradients);
    }
    if (around.evaluate > 0) {
      const auto evaluation = session.evaluate(source, around.evaluate);
      if (rank.rank == 0) outcome.evaluation = evaluation;
    }
    const std::lock_guard lock(mutex);
    collect_gradients(session, outcome.gradients);
    collect_weights(session, outcome.weights, &outcome.unlike);
    collect_biases(session, outcome);
    if (around.finished) around.finished(session);
  });
  for (const auto& [name, values] : outcome.weights) {
    auto& update = outcome.updates[name];
    for (size_t i = 0; i < values.size(); ++i) update.push_back(values[i] - before[name][i]);
  }
  return outcome;
}

/// The largest relative error over tensors (Euclidean norms), and the name of that tensor.
inline std::pair<double, std::string> worst(const Tensors& a, const Tensors& b) {
  std::pair<double, std::string> found{0, ""};
  if (a.size() != b.size()) return {1e9, "different sets of tensors"};
  for (const auto& [name, values] : b) {
    const auto it = a.find(name);
    const double error =
        it == a.end() || it->second.size() != values.size() ? 1e9 : relative_error(it->second, values);
    if (!(error <= found.first)) found = {error, name};
  }
  return found;
}

/// The names of the tensors that differ in any bit.
inline std::vector<std::string> different(const Tensors& a, const Tensors& b) {
  std::vector<std::string> names;
  for (const auto& [name, values] : b)
    if (const auto it = a.find(name); it == a.end() || !same_bits(it->second, values)) names.push_back(name);
  if (a.size() != b.size()) names.push_back("(different sets of tensors)");
  return names;
}

}  // namespace moesaic::test
