#pragma once
// The numbers that the layers of one rank are recorded with: shapes, strategies and groups, all resolved.
// Letters as in docs/glossary.md.
#include <cstdint>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "config/config.h"
#include "mesh/mesh.h"
#include "mesh/placement.h"
#include "mesh/rules.h"

namespace moesaic {

/// This rank's ends of the groups that layers use. All outlive the layers.
struct LayerGroups {
  Communicator* n = nullptr;      // a sequence's ranks
  Communicator* e = nullptr;      // the ranks that hold the experts
  Communicator* scope = nullptr;  // the ranks that hold the tokens of a balance scope (n, or the stage)
};

struct LayerSpec {
  ModelConfig model;
  BalanceConfig balance;
  LayoutConfig layout;  // dispatch and overlap are never automatic here, e is never 0
  LayerGroups groups;
  ExpertPlacement placement;
  DType dtype;            // of parameters and activations
  bool packed_documents;  // a sequence may hold several documents, which do not see each other
  bool deterministic;     // repeats are bit-equal

  int64_t B, S, T;  // micro-batch, sequence, tokens of this rank
  int64_t n, n_rank;
  int64_t e, e_rank;
  int64_t attention_batch;    // sequences that this rank's attention sees: B under sp, B/n under batch
  int64_t local_heads;        // H/n under sp, H under batch
  int64_t local_kv_heads;     // max(G/n, 1) under sp, G under batch
  int64_t num_local_experts;  // E/e
  int64_t max_rows;           // R
  int64_t max_recv;           // rows of the receive buffer
  int64_t num_scopes;         // balance scopes of a micro-batch that this rank's tokens may lie in
  int64_t tokens_per_scope;
  int64_t scopes_per_step;  // over all replicas and micro-batches of a step
  int64_t tokens_per_step;

  /// Whether what stands beside an exchange is made in two parts, one of which runs under it.
  bool in_parts() const { return layout.overlap == OverlapMode::parts; }
  bool exchanges_heads() const { return n > 1 && layout.attention == AttentionStrategy::sp; }
  bool a2a() const { return e > 1 && layout.dispatch == Dispatch::a2a; }
  bool ag_rs() const { return e > 1 && layout.dispatch == Dispatch::ag_rs; }
  double expected_rows() const { return static_cast<double>(T * model.top_k); }
  int64_t qkv_width() const { return (model.num_heads + 2 * model.num_kv_heads) * model.head_dim; }
  /// LongRoPE's set for sequences of S tokens; none and 1 without it.
  std::vector<double> rope_factors() const {
    return S > model.long_rope.original_len ? model.long_rope.long_factors : model.long_rope.short_factors;
  }
  double rope_scale() const {
    return S > model.long_rope.original_len ? model.long_rope.long_scale : model.long_rope.short_scale;
  }
  int64_t local_qkv_width() const { return (local_heads + 2 * local_kv_heads) * model.head_dim; }
};

/// Which dispatch `automatic` means without a tuning file: a2a if K <= 0.75 e, else ag_rs (the paper's figure 7).
Dispatch resolve_dispatch(const LayoutConfig& layout, int64_t top_k, int64_t e);

/// What `automatic` means: parts on a GPU; none elsewhere, where a rank does one thing at a time.
OverlapMode resolve_overlap(OverlapMode overlap, DeviceKind device);

/// The spec of a rank. `rows_factor` replaces layout.rows_factor (it grows when routing passes the bound).
LayerSpec make_layer_spec(const Config& config, const Mesh& mesh, int64_t rank, const LayerGroups& groups,
                          double rows_factor);

/// Which group of ranks a balance scope spans.
Axis scope_axis(BalanceScope scope);

}  // namespace moesaic
