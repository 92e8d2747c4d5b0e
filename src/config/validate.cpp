#include "config/validate.h"

#include "base/error.h"
#include "config/data_blend.h"
#include "config/enum_names.h"
#include "config/field_table.h"

namespace moesaic {
namespace {

constexpr double kMaxParameters = 1e15;  // also what keeps count_model within 64 bits

void check_ranges(const Config& config) {
  Config bound = config;
  for (const Field& field : bind_fields(bound)) {
    if (const auto problem = range_problem(field)) fail<ConfigError>("{} {}", field.key, *problem);
  }
}

void check_router(const ModelConfig& m) {
  const RouterConfig& r = m.router;
  require<ConfigError>(m.top_k <= m.num_experts,
                       "model.top_k = {} is more than model.num_experts = {}: a token's experts must differ",
                       m.top_k, m.num_experts);
  require<ConfigError>(m.num_experts % r.num_groups == 0,
                       "model.router.num_groups = {} does not divide model.num_experts = {}", r.num_groups,
                       m.num_experts);
  require<ConfigError>(r.num_groups_kept <= r.num_groups,
                       "model.router.num_groups_kept = {} is more than model.router.num_groups = {}",
                       r.num_groups_kept, r.num_groups);
  const int64_t allowed = r.num_groups_kept * (m.num_experts / r.num_groups);
  require<ConfigError>(
      m.top_k <= allowed,
      "model.top_k = {} is more than the {} experts of the model.router.num_groups_kept = {} groups "
      "that a token may choose from",
      m.top_k, allowed, r.num_groups_kept);
  if (r.score == ScoreFunction::sparsemixer)
    require<ConfigError>(
        m.top_k == 2 && !r.renormalize && r.num_groups == 1 && !r.selection_bias && !r.force_balance,
        "model.router.score = sparsemixer needs model.top_k = 2, renormalize = false, num_groups = 1, "
        "selection_bias = false and force_balance = false, found {}, {}, {}, {} and {}",
        m.top_k, r.renormalize, r.num_groups, r.selection_bias, r.force_balance);
  require<ConfigError>(!r.softmax_after_topk || r.score == ScoreFunction::softmax,
                       "model.router.softmax_after_topk = true needs model.router.score = softmax, found {}",
                       name_of(r.score));
}

void check_long_rope(const ModelConfig& m) {
  const LongRopeConfig& l = m.long_rope;
  const auto expected = static_cast<size_t>(l.original_len > 0 ? m.head_dim / 2 : 0);
  require<ConfigError>(
      l.short_factors.size() == expected && l.long_factors.size() == expected,
      "model.long_rope.short_factors and long_factors have {} and {} numbers, expected {} with "
      "model.head_dim = {} and model.long_rope.original_len = {}",
      l.short_factors.size(), l.long_factors.size(), expected, m.head_dim, l.original_len);
}

void check_model(const ModelConfig& m) {
  require<ConfigError>(
      m.num_heads % m.num_kv_heads == 0,
      "model.num_kv_heads = {} does not divide model.num_heads = {}: every key/value head serves the "
      "same number of query heads",
      m.num_kv_heads, m.num_heads);
  require<ConfigError>(m.head_dim % 2 == 0,
                       "model.head_dim = {} is odd: rotary embedding turns pairs of numbers", m.head_dim);
  require<ConfigError>(m.num_dense_layers <= m.num_layers,
                       "model.num_dense_layers = {} is more than model.num_layers = {}", m.num_dense_layers,
                       m.num_layers);
  require<ConfigError>((m.num_dense_layers > 0) == (m.dense_ffn > 0),
                       "model.num_dense_layers = {} and model.dense_ffn = {}: set both or neither",
                       m.num_dense_layers, m.dense_ffn);
  check_router(m);
  check_long_rope(m);
  const double experts = static_cast<double>(m.num_experts) * static_cast<double>(m.expert_ffn) +
                         static_cast<double>(m.shared_ffn + m.dense_ffn);
  const double heads = static_cast<double>(m.head_dim) * static_cast<double>(m.num_heads);
  const double parameters = static_cast<double>(m.num_layers * m.hidden) * (3 * experts + 4 * heads) +
                            2 * static_cast<double>(m.vocab * m.hidden);
  require<ConfigError>(
      parameters <= kMaxParameters,
      "the model has about {:.2g} parameters, expected at most {:.0g}; check model.num_layers = {}, "
      "model.hidden = {}, model.num_experts = {} and model.expert_ffn = {}",
      parameters, kMaxParameters, m.num_layers, m.hidden, m.num_experts, m.expert_ffn);
}

void check_optim(const OptimConfig& o, const TrainConfig& t) {
  require<ConfigError>(o.decay == DecaySchedule::constant || o.min_lr <= o.lr,
                       "optim.min_lr = {} is more than optim.lr = {}, from which it decays", o.min_lr, o.lr);
  require<ConfigError>(
      o.decay != DecaySchedule::wsd || o.decay_steps == 0 || o.warmup_steps + o.decay_steps <= t.steps,
      "optim.warmup_steps = {} and optim.decay_steps = {} together pass train.steps = {}", o.warmup_steps,
      o.decay_steps, t.steps);
}

// A folder name that stays inside run.folder.
void check_run_name(const std::string& name) {
  const bool plain = !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
                     name.find('\0') == std::string::npos;
  require<ConfigError>(plain, "run.name = {} cannot name a folder: expected a name without /",
                       toml_string(name));
}

void check_built(const LayoutConfig& l, const RunConfig& r) {
  require<ConfigError>(l.pp == 1, "layout.pp = {}: pipeline stages are not built yet; use layout.pp = 1",
                       l.pp);
  require<ConfigError>(l.attention != AttentionStrategy::tp,
                       "layout.attention = tp is not built yet; use sp or batch");
  require<ConfigError>(l.experts != ExpertStrategy::tp, "layout.experts = tp is not built yet; use ep");
  require<ConfigError>(r.device != DeviceKind::sim, "run.device = sim is not built yet; use cpu or cuda");
}

/// What the kernels' tables and registers hold.
void check_gpu(const ModelConfig& m) {
  constexpr int64_t kMostExperts = 1024, kMostHeadDim = 512;
  require<ConfigError>(m.num_experts <= kMostExperts,
                       "model.num_experts = {} is more than run.device = cuda can route to, {}",
                       m.num_experts, kMostExperts);
  require<ConfigError>(m.head_dim <= kMostHeadDim,
                       "model.head_dim = {} is more than run.device = cuda can attend with, {}", m.head_dim,
                       kMostHeadDim);
}

}  // namespace

void validate_values(const Config& config) {
  check_ranges(config);
  check_model(config.model);
  check_optim(config.optim, config.train);
  check_run_name(config.run.name);
  require<ConfigError>(!config.run.folder.empty(),
                       "run.folder is empty: expected a folder to write runs into");
  parse_blend(config.data.train);
  check_built(config.layout, config.run);
  if (config.run.device == DeviceKind::cuda) check_gpu(config.model);
}

}  // namespace moesaic
