#pragma once
// The layouts that must give the result of one rank, as rows of option values: a pairwise choice up to 8 ranks, or every
// combination of the layout's own options up to 32 ranks when the environment has MOESAIC_FULL_MATRIX=1.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "base/error.h"
#include "mesh/rules.h"
#include "support/layout_runner.h"
#include "support/pairwise.h"

namespace moesaic::test {

struct LayoutCase {
  std::string name;
  Config config;
  bool packed = false;  // several documents in a sequence
};

inline constexpr int64_t kExperts = 16;

/// What can be chosen, and how a choice changes a case. `layout`: part of the full matrix.
struct CaseOption {
  std::string name;
  bool layout;
  std::vector<std::string> values;
  std::function<void(LayoutCase&, int)> apply;
};

inline const std::vector<CaseOption>& case_options() {
  using C = LayoutCase;
  static const std::vector<CaseOption> options{
      {"n", true, {"1", "2", "4", "8"}, [](C& c, int v) { c.config.layout.n = int64_t{1} << v; }},
      {"dp", true, {"1", "2", "4"}, [](C& c, int v) { c.config.layout.dp = int64_t{1} << v; }},
      {"e",
       true,
       {"n/2", "n", "2n"},
       [](C& c, int v) { c.config.layout.e = c.config.layout.n * (1 << v) / 2; }},
      {"attention",
       true,
       {"sp", "batch"},
       [](C& c, int v) { c.config.layout.attention = v ? AttentionStrategy::batch : AttentionStrategy::sp; }},
      {"dispatch",
       true,
       {"a2a", "ag_rs"},
       [](C& c, int v) { c.config.layout.dispatch = v ? Dispatch::ag_rs : Dispatch::a2a; }},
      {"rebuild",
       true,
       {"none", "selective", "full"},
       [](C& c, int v) { c.config.layout.rebuild = static_cast<Rebuild>(v); }},
      {"accumulation",
       true,
       {"1", "2"},
       [](C& c, int v) {
         const LayoutConfig& l = c.config.layout;
         const int64_t micro_batches = l.dp * (v + 1);
         const int64_t sequences = l.attention == AttentionStrategy::batch ? l.n : 1;
         c.config.train.global_batch = std::max<int64_t>(16, micro_batches * sequences);
         c.config.train.micro_batch = c.config.train.global_batch / micro_batches;
       }},
      {"overlap",
       false,
       {"none", "parts"},
       [](C& c, int v) { c.config.layout.overlap = v ? OverlapMode::parts : OverlapMode::none; }},
      {"kv_heads",
       false,
       {"8", "2", "1"},
       [](C& c, int v) { c.config.model.num_kv_heads = v == 0   ? 8
                                                       : v == 1 ? 2
                                                                : 1; }},
      {"qk_norm", false, {"no", "yes"}, [](C& c, int v) { c.config.model.qk_norm = v; }},
      {"shared", false, {"no", "yes"}, [](C& c, int v) { c.config.model.shared_ffn = v * 20; }},
      {"dense",
       false,
       {"no", "yes"},
       [](C& c, int v) { c.config.model.num_dense_layers = v, c.config.model.dense_ffn = v * 40; }},
      {"tied", false, {"no", "yes"}, [](C& c, int v) { c.config.model.tied_embedding = v; }},
      {"z_loss", false, {"no", "yes"}, [](C& c, int v) { c.config.balance.z_coef = v * 1e-2; }},
      {"scope",
       false,
       {"sequence", "micro_batch", "global"},
       [](C& c, int v) { c.config.balance.scope = static_cast<BalanceScope>(v); }},
      {"expert_groups", false, {"0", "4"}, [](C& c, int v) { c.config.balance.expert_groups = v * 4; }},
      {"capacity", false, {"no", "1.0"}, [](C& c, int v) { c.config.balance.capacity_factor = v; }},
      {"router",
       false,
       {"softmax", "after_topk", "sigmoid_groups", "plain"},
       [](C& c, int v) {
         RouterConfig& r = c.config.model.router;
         r.softmax_after_topk = v == 1;
         r.renormalize = v != 3;
         if (v == 2)
           r.score = ScoreFunction::sigmoid, r.num_groups = 4, r.num_groups_kept = 2, r.weight_scale = 2.5;
       }},
      {"selection_bias",
       false,
       {"no", "yes"},
       [](C& c, int v) { c.config.model.router.selection_bias = v, c.config.model.router.bias_rate = 0.02; }},
      {"top_k", false, {"1", "2", "3"}, [](C& c, int v) { c.config.model.top_k = v + 1; }},
      {"documents",
       false,
       {"one", "packed"},
       [](C& c, int v) { c.packed = c.config.data.packed_documents = v; }},
      {"rows_factor", false, {"2", "1"}, [](C& c, int v) { c.config.layout.rows_factor = 2 - v; }},
      {"clip", false, {"no", "yes"}, [](C& c, int v) { c.config.optim.clip = v * 0.2; }},
  };
  return options;
}

inline LayoutCase make_case(const OptionRow& row) {
  LayoutCase c{.name = "", .config = small_config()};
  c.config.model.num_experts = kExperts;
  c.config.balance.aux_coef = 0.05;
  for (size_t i = 0; i < row.size(); ++i) {
    const CaseOption& option = case_options()[i];
    option.apply(c, row[i]);
    c.name += fmt::format("{}{}={}", i ? " " : "", option.name, option.values[static_cast<size_t>(row[i])]);
  }
  return c;
}

/// Whether the rules allow a row, with at most `most_ranks` ranks.
inline bool allowed(const OptionRow& row, int64_t most_ranks) {
  const LayoutCase c = make_case(row);
  const LayoutConfig& l = c.config.layout;
  if (l.dp * l.n > most_ranks || l.e < 1) return false;  // e = n/2 of n = 1
  try {
    validate_layout(c.config);
  } catch (const ConfigError&) {
    return false;
  }
  return true;
}

inline std::vector<int> option_sizes() {
  std::vector<int> sizes;
  for (const CaseOption& option : case_options()) sizes.push_back(static_cast<int>(option.values.size()));
  return sizes;
}

/// `sets` covering arrays, one after the other.
inline std::vector<LayoutCase> pairwise_cases(int64_t most_ranks, uint64_t sets) {
  std::vector<LayoutCase> cases;
  for (uint64_t set = 0; set < sets; ++set)
    for (const OptionRow& row : pairwise(
             option_sizes(), [&](const OptionRow& r) { return allowed(r, most_ranks); }, 1 + 1000 * set))
      cases.push_back(make_case(row));
  return cases;
}

/// Every allowed combination of the layout's options, each with other values of the model's options.
inline std::vector<LayoutCase> full_cases(int64_t most_ranks) {
  const std::vector<int> sizes = option_sizes();
  const auto& options = case_options();
  std::vector<LayoutCase> cases;
  OptionRow fixed(sizes.size(), -1);
  const std::function<void(size_t)> choose = [&](size_t option) {
    if (option == sizes.size() || !options[option].layout) {
      const OptionRow row = random_row(
          sizes, fixed, [&](const OptionRow& r) { return allowed(r, most_ranks); }, 7 + cases.size());
      if (!row.empty()) cases.push_back(make_case(row));
      return;
    }
    for (fixed[option] = 0; fixed[option] < sizes[option]; ++fixed[option]) choose(option + 1);
    fixed[option] = -1;
  };
  choose(0);
  return cases;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

/// Never under a sanitizer, where it would take hours.
inline bool full_matrix() {
  if (kSanitized) return false;
  const char* value = std::getenv("MOESAIC_FULL_MATRIX");
  return value != nullptr && std::string(value) == "1";
}

/// Calls f(case) for every `count`-th of the cases, from number `first` on: tests share the cases in equal parts.
template <class F>
void for_each_share(const std::vector<LayoutCase>& cases, int first, int count, const F& f) {
  for (size_t i = static_cast<size_t>(first); i < cases.size(); i += static_cast<size_t>(count)) {
    SCOPED_TRACE(cases[i].name);
    f(cases[i]);
  }
}

/// The same model, batch and balance scopes on one rank, nothing rebuilt.
inline LayoutCase one_rank(LayoutCase c) {
  TrainConfig& t = c.config.train;
  switch (c.config.balance.scope) {
    case BalanceScope::sequence:
      t.micro_batch = t.global_batch;
      break;
    case BalanceScope::micro_batch:
      break;
    case BalanceScope::global:
      t.micro_batch *= c.config.layout.dp;
      break;
  }
  c.config.layout = LayoutConfig{};
  c.name = "one rank for " + c.name;
  return c;
}

inline Outcome run_case(const LayoutCase& c, int64_t num_steps) {
  // 19 sequences: no layout's micro-batches divide them, so the last ones are blank.
  return run_layout(c.config, num_steps, {.evaluate = 19, .source = [&](std::span<const int64_t> positions) {
                                            return random_batch(positions, c.config.train.seq_len,
                                                                c.config.model.vocab, c.packed);
                                          }});
}

}  // namespace moesaic::test
