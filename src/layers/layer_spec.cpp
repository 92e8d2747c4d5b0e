#include "layers/layer_spec.h"

#include <algorithm>

#include "base/check.h"

namespace moesaic {

Dispatch resolve_dispatch(const LayoutConfig& layout, int64_t top_k, int64_t e) {
  if (layout.dispatch != Dispatch::automatic) return layout.dispatch;
  return 4 * top_k <= 3 * e ? Dispatch::a2a : Dispatch::ag_rs;
}

OverlapMode resolve_overlap(OverlapMode overlap, DeviceKind device) {
  if (overlap != OverlapMode::automatic) return overlap;
  return device == DeviceKind::cuda ? OverlapMode::parts : OverlapMode::none;
}

Axis scope_axis(BalanceScope scope) {
  return scope == BalanceScope::global ? Axis::stage : Axis::n;
}

LayerSpec make_layer_spec(const Config& config, const Mesh& mesh, int64_t rank, const LayerGroups& groups,
                          double rows_factor) {
  Config with_factor = config;
  with_factor.layout.rows_factor = rows_factor;
  const RankShape shape = derive(with_factor);
  const ModelConfig& model = config.model;
  const int64_t e = mesh.size(Axis::e), n = mesh.size(Axis::n), B = config.train.micro_batch,
                S = config.train.seq_len;
  const bool sp = config.layout.attention == AttentionStrategy::sp;
  LayerSpec spec{.model = model,
                 .balance = config.balance,
                 .layout = config.layout,
                 .groups = groups,
                 .placement = ExpertPlacement::contiguous(model.num_experts, e),
                 .dtype = config.train.compute == ComputeType::bf16 ? DType::bf16 : DType::f32,
                 .packed_documents = config.data.packed_documents,
                 .deterministic = config.train.deterministic,
                 .B = B,
                 .S = S,
                 .T = shape.num_tokens,
                 .n = n,
                 .n_rank = mesh.index(Axis::n, rank),
                 .e = e,
                 .e_rank = mesh.index(Axis::e, rank),
                 .attention_batch = sp ? B : B / n,
                 .local_heads = sp ? model.num_heads / n : model.num_heads,
                 .local_kv_heads = sp ? std::max<int64_t>(model.num_kv_heads / n, 1) : model.num_kv_heads,
                 .num_local_experts = shape.num_local_experts,
                 .max_rows = shape.max_rows,
                 .max_recv = 0,
                 .num_scopes = config.balance.scope == BalanceScope::sequence ? B : 1,
                 .tokens_per_scope = 0,
                 .scopes_per_step = 0,
                 .tokens_per_step = config.train.global_batch * S};
  spec.layout.e = e;
  spec.layout.dispatch = resolve_dispatch(config.layout, model.top_k, e);
  spec.layout.overlap = resolve_overlap(config.layout.overlap, config.run.device);
  spec.max_recv = spec.a2a() ? std::min(e * spec.T, spec.max_rows) : e * spec.T;
  switch (config.balance.scope) {
    case BalanceScope::sequence:
      spec.tokens_per_scope = S;
      spec.scopes_per_step = config.train.global_batch;
      break;
    case BalanceScope::micro_batch:
      spec.tokens_per_scope = B * S;
      spec.scopes_per_step = shape.num_micro_batches * mesh.size(Axis::dp);
      break;
    case BalanceScope::global:
      spec.tokens_per_scope = B * S * mesh.size(Axis::dp);
      spec.scopes_per_step = shape.num_micro_batches;
      break;
  }
  return spec;
}

}  // namespace moesaic
