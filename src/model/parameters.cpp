#include "model/parameters.h"

#include <fmt/format.h>

#include "layers/attention.h"
#include "layers/moe.h"

namespace moesaic {

std::string layer_prefix(int64_t layer) {
  return fmt::format("layers.{}.", layer);
}

ParameterTable make_parameters(const ModelConfig& m, const Mesh& mesh, int64_t rank,
                               const ExpertPlacement& placement) {
  const int64_t stage = mesh.size(Axis::stage), edp = mesh.size(Axis::edp);
  ParameterTable table;
  table.begin_bucket("embedding", Replicas::stage, stage);
  const double embedding_std = m.embedding_std > 0 ? m.embedding_std : m.init_std;
  table.add({"embedding", {m.vocab, m.hidden}, Init::normal, embedding_std, true, "embedding"});
  for (int64_t i = 0; i < m.num_layers; ++i) {
    const std::string prefix = layer_prefix(i);
    table.begin_bucket(fmt::format("layers.{}", i), Replicas::stage, stage);
    add_attention_parameters(table, m, prefix);
    if (is_dense(m, i)) {
      add_dense_layer_parameters(table, m, prefix);
      continue;
    }
    add_moe_dense_parameters(table, m, prefix);
    table.begin_bucket(fmt::format("layers.{}.experts", i), Replicas::edp, edp);
    add_expert_parameters(table, m, prefix, placement.local_experts(mesh.index(Axis::e, rank)));
  }
  table.begin_bucket("head", Replicas::stage, stage);
  add_norm_parameters(table, m, "final_norm");
  if (!m.tied_embedding) table.add({"head", {m.vocab, m.hidden}, Init::normal, m.init_std, true, "head"});
  if (m.head_bias) add_bias_parameter(table, "head_bias", m.vocab, "head_bias");
  table.finish();
  return table;
}

}  // namespace moesaic
