#include "config/counts.h"

namespace moesaic {

ModelCounts count_model(const ModelConfig& m) {
  const int64_t dense_layers = m.num_dense_layers;
  const int64_t moe_layers = m.num_layers - dense_layers;
  const int64_t attention = m.hidden * m.head_dim * 2 * (m.num_heads + m.num_kv_heads);  // q, output; k, v
  const int64_t expert = 3 * m.hidden * m.expert_ffn;
  const int64_t router = m.hidden * m.num_experts;
  const int64_t shared = 3 * m.hidden * m.shared_ffn;
  const int64_t dense = 3 * m.hidden * m.dense_ffn;
  const int64_t head = m.vocab * m.hidden;
  const int64_t norms = (m.layer_norm ? 2 : 1) * (2 * m.num_layers + 1) * m.hidden +
                        m.num_layers * (m.qk_norm ? 2 * m.head_dim : 0);
  const int64_t attention_biases = m.hidden + m.head_dim * (m.num_heads + 2 * m.num_kv_heads);
  const int64_t biases =
      (m.attention_bias ? m.num_layers * attention_biases : 0) + (m.head_bias ? m.vocab : 0);

  const int64_t common = m.num_layers * attention + moe_layers * (router + shared) + dense_layers * dense;
  ModelCounts counts;
  counts.total =
      common + moe_layers * m.num_experts * expert + norms + biases + (m.tied_embedding ? 1 : 2) * head;
  counts.active = common + moe_layers * m.top_k * expert + head;
  return counts;
}

double flops_per_token(const ModelConfig& m, int64_t seq_len) {
  const double attention = static_cast<double>(m.num_layers) * static_cast<double>(seq_len) *
                           static_cast<double>(m.num_heads * m.head_dim);
  return 6.0 * (static_cast<double>(count_model(m).active) + attention);
}

std::optional<double> peak_flops(DeviceKind device) {
  return device == DeviceKind::cuda ? std::optional(989e12) : std::nullopt;
}

}  // namespace moesaic
