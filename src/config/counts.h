#pragma once
// How large a model is and how much arithmetic a token costs, from its shape alone.
#include <cstdint>
#include <optional>

#include "config/config.h"

namespace moesaic {

struct ModelCounts {
  int64_t total = 0;   // every trained parameter; a tied embedding once; no selection bias
  int64_t active = 0;  // matmul parameters that one token meets: attention projections, router, K experts,
                       // shared expert, dense FFN, head (tied or not); no embedding lookup, no norms
};

/// Requires values that validate_values accepts (it bounds the total).
ModelCounts count_model(const ModelConfig& model);

/// Operations of forward and backward per token of a causal sequence of S tokens: 6 per active parameter and
/// 6*L*S*H*A for attention scores and values. No recompute. The convention behind MFU, as in MegaScale-MoE
/// (arXiv 2505.11432).
double flops_per_token(const ModelConfig& model, int64_t seq_len);

/// Operations per second that MFU is counted against, of one device: a Hopper GPU's dense BF16 peak. None where no
/// peak is known.
std::optional<double> peak_flops(DeviceKind device);

}  // namespace moesaic
