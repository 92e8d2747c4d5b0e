#pragma once
// Every rule that ties the layout to the model and the batch, and the sizes that follow from them. Checked
// before any memory is taken, from values alone, so every rank refuses the same run in the same words.
#include <cstdint>

#include "config/config.h"

namespace moesaic {

/// Throws ConfigError at the first broken rule, with the keys and both numbers. Requires values that
/// validate_values accepts.
void validate_layout(const Config& config);

/// Sizes that are equal on every rank. Letters as in docs/glossary.md.
struct RankShape {
  int64_t num_tokens = 0;         // T = B*S/n, tokens of this rank in one micro-batch
  int64_t num_micro_batches = 0;  // of a step, per replica: global_batch / (dp*B)
  int64_t num_local_experts = 0;  // E/e
  int64_t max_rows = 0;  // bound on R: ceil(rows_factor*T*K), at most e*T*min(K, E/e) (every token of e
                         // ranks); T*K when e = 1
};

/// Throws as validate_layout does.
RankShape derive(const Config& config);

}  // namespace moesaic
