#include "mesh/rules.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/error.h"
#include "mesh/mesh.h"

namespace moesaic {
namespace {

void check_attention(const ModelConfig& m, const LayoutConfig& l, const TrainConfig& t) {
  if (l.attention == AttentionStrategy::batch) {
    require<ConfigError>(
        t.micro_batch % l.n == 0,
        "layout.attention = batch needs whole sequences per rank, but layout.n = {} does not divide "
        "train.micro_batch = {}",
        l.n, t.micro_batch);
    return;
  }
  require<ConfigError>(
      t.seq_len % l.n == 0,
      "layout.n = {} does not divide train.seq_len = {}: each rank holds an equal part of a sequence", l.n,
      t.seq_len);
  require<ConfigError>(
      m.num_heads % l.n == 0,
      "layout.n = {} does not divide model.num_heads = {}: each rank attends with an equal part of "
      "the heads",
      l.n, m.num_heads);
  const int64_t heads = m.num_kv_heads;
  require<ConfigError>(
      heads < l.n || heads % l.n == 0,
      "layout.n = {} does not divide model.num_kv_heads = {}: each rank attends with an equal part of "
      "the key/value heads",
      l.n, heads);
  require<ConfigError>(
      heads >= l.n || l.n % heads == 0,
      "model.num_kv_heads = {} does not divide layout.n = {}: key/value heads are repeated over equal "
      "numbers of ranks",
      heads, l.n);
}

void check_experts(const Config& config) {
  const int64_t experts = config.model.num_experts;
  const int64_t e = num_expert_ranks(config.layout);
  require<ConfigError>(
      experts % e == 0,
      "layout.e = {} does not divide model.num_experts = {}: each rank holds equally many experts", e,
      experts);
  const int64_t groups = config.balance.expert_groups;
  require<ConfigError>(groups == 0 || experts % groups == 0,
                       "balance.expert_groups = {} does not divide model.num_experts = {}", groups, experts);
  require<ConfigError>(config.layout.rows_factor >= 1, "layout.rows_factor must be at least 1, but is {}",
                       config.layout.rows_factor);
}

void check_batch(const LayoutConfig& l, const TrainConfig& t) {
  const int64_t at_once = l.dp * t.micro_batch;
  require<ConfigError>(
      t.global_batch % at_once == 0,
      "train.global_batch = {} is not a multiple of layout.dp * train.micro_batch = {} * {} = {}: "
      "every replica runs equally many whole micro-batches",
      t.global_batch, l.dp, t.micro_batch, at_once);
}

}  // namespace

void validate_layout(const Config& config) {
  validate_mesh(config.layout);
  check_experts(config);
  check_attention(config.model, config.layout, config.train);
  check_batch(config.layout, config.train);
}

RankShape derive(const Config& config) {
  validate_layout(config);
  const LayoutConfig& l = config.layout;
  const TrainConfig& t = config.train;
  const int64_t e = num_expert_ranks(l);
  const int64_t top_k = config.model.top_k;

  RankShape shape;
  shape.num_tokens = div_exact(t.micro_batch * t.seq_len, l.n);
  shape.num_micro_batches = div_exact(t.global_batch, l.dp * t.micro_batch);
  shape.num_local_experts = div_exact(config.model.num_experts, e);
  const int64_t possible = e * shape.num_tokens * std::min(top_k, shape.num_local_experts);
  const double wanted = std::ceil(l.rows_factor * static_cast<double>(shape.num_tokens * top_k));
  shape.max_rows = wanted < static_cast<double>(possible) ? static_cast<int64_t>(wanted) : possible;
  return shape;
}

}  // namespace moesaic
