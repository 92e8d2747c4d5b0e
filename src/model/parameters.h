#pragma once
// Which parameters a rank holds: the rows of the parameter table for a decoder of this shape.
//
//   bucket              rows
//   embedding           embedding [V, D]
//   layers.i            attention.{norm, q, k, v, o, q_norm, k_norm}, ffn.norm (each norm with "_bias" under model.layer_norm; q, k, v and o under
//                       model.attention_bias), moe.router, shared.{w1, w3, w2}
//                       (a leading dense layer: dense.{w1, w3, w2} instead of moe and shared)
//   layers.i.experts    experts.e.{w1, w3}, experts.e.w2 of this rank's experts
//   head                final_norm, head [V, D] (untied), head_bias [V] (model.head_bias)
#include "config/config.h"
#include "mesh/mesh.h"
#include "mesh/placement.h"
#include "tensor/parameter_table.h"

namespace moesaic {

ParameterTable make_parameters(const ModelConfig& model, const Mesh& mesh, int64_t rank,
                               const ExpertPlacement& placement);

/// "layers.3."
std::string layer_prefix(int64_t layer);
inline bool is_dense(const ModelConfig& model, int64_t layer) {
  return layer < model.num_dense_layers;
}

}  // namespace moesaic
