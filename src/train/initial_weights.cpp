#include "train/initial_weights.h"

#include <fmt/format.h>

#include <bit>
#include <map>
#include <set>

#include "base/error.h"
#include "checkpoint/weights.h"
#include "config/field_table.h"
#include "model/parameters.h"

namespace moesaic {
namespace {

/// The names of all weights of the model, whichever rank holds them.
std::set<std::string> all_weights(const ModelConfig& model) {
  const ParameterTable table =
      make_parameters(model, Mesh(LayoutConfig{}), 0, ExpertPlacement::contiguous(model.num_experts, 1));
  std::set<std::string> names;
  for (const ParameterRow& row : table.rows()) names.insert(row.name);
  return names;
}

/// Stores FP32 values as BF16 weights and, where this rank's shard holds them, the lower halves of their masters.
void store_bf16(Session& session, const ParameterRow& row, const std::vector<float>& values) {
  Stage& stage = session.stage();
  std::vector<uint16_t> upper(values.size()), lower(values.size());
  for (size_t i = 0; i < values.size(); ++i) {  // as ops/initialize: nearest, ties away from zero
    const auto bits = std::bit_cast<uint32_t>(values[i]);
    upper[i] = static_cast<uint16_t>((bits + 0x8000u) >> 16);
    lower[i] = static_cast<uint16_t>(bits);
  }
  stage.device().store(stage.weights(row.bucket) + 2 * row.offset, upper.data(), 2 * row.shape.numel());
  if (!session.trains()) return;
  const auto bucket = static_cast<size_t>(row.bucket);
  const int64_t shard = stage.table().buckets()[bucket].shard(),
                first = session.reducer().shard_index(row.bucket) * shard;
  const int64_t begin = std::max(row.offset, first),
                end = std::min(row.offset + row.shape.numel(), first + shard);
  if (begin >= end) return;
  for (const Optimizer::State& state : session.optimizer().states())
    if (state.kind == "remainder")
      stage.device().store(state.shards[bucket] + 2 * (begin - first), lower.data() + (begin - row.offset),
                           2 * (end - begin));
}

void load_router_biases(Stage& stage, const CheckpointReader& reader) {
  const ModelConfig& m = stage.spec().model;
  if (!m.router.selection_bias) return;
  std::vector<float> bias(static_cast<size_t>(m.num_experts));
  for (int64_t i = m.num_dense_layers; i < m.num_layers; ++i) {
    PieceToLoad piece;
    piece.kind = "router_bias", piece.name = layer_prefix(i) + "moe.router_bias", piece.dtype = DType::f32;
    piece.shape = {m.num_experts}, piece.count = m.num_experts, piece.data = bias.data();
    reader.load(std::span(&piece, 1));
    stage.device().store(stage.router_bias(i), bias.data(), 4 * m.num_experts);
  }
}

}  // namespace

void load_weights(Session& session, const CheckpointReader& reader) {
  Stage& stage = session.stage();
  const std::set<std::string> known = all_weights(stage.spec().model);
  std::map<std::string, StoredWeight> stored;
  for (StoredWeight& weight : stored_weights(reader)) {
    require<IoError>(known.contains(weight.name),
                     "{} holds weight/{}, which this run's model has not: the model is another one",
                     reader.path(), weight.name);
    stored.emplace(weight.name, std::move(weight));
  }
  for (const ParameterRow& row : stage.table().rows()) {
    const auto found = stored.find(row.name);
    require<IoError>(found != stored.end(), "{} has no tensor weight/{}: the model is another one",
                     reader.path(), row.name);
    std::vector<int64_t> shape;
    shape.reserve(static_cast<size_t>(row.shape.num_dims()));
    for (int i = 0; i < row.shape.num_dims(); ++i) shape.push_back(row.shape[i]);
    require<IoError>(found->second.shape == shape,
                     "{}: weight/{} has shape [{}], but this run's model makes it {}", reader.path(),
                     row.name, fmt::join(found->second.shape, ", "), row.shape.str());
    const std::vector<float> values = read_master(reader, found->second);
    if (stage.spec().dtype == DType::bf16)
      store_bf16(session, row, values);
    else
      stage.device().store(stage.weights(row.bucket) + 4 * row.offset, values.data(), 4 * row.shape.numel());
  }
  load_router_biases(stage, reader);
  stage.device().synchronize();
}

std::vector<std::string> model_differences(const Config& here, const Config& there) {
  Config a = here, b = there;
  a.model.name = b.model.name, a.model.init_std = b.model.init_std;
  const auto fields_a = bind_fields(a), fields_b = bind_fields(b);
  std::vector<std::string> differences;
  for (size_t i = 0; i < fields_a.size(); ++i) {
    const std::string value_a = value_text(fields_a[i]), value_b = value_text(fields_b[i]);
    if (fields_a[i].key.starts_with("model.") && value_a != value_b)
      differences.push_back(fmt::format("{} is {} here and {} there", fields_a[i].key, value_a, value_b));
  }
  return differences;
}

}  // namespace moesaic
