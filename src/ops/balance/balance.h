#pragma once
// Load: counting, the balance loss, and capacity. A scope is the set of tokens whose load is balanced
// together (BalanceScope): scope[t] is the row of token t in the [num_scopes, E] statistics; a scope's tokens
// may lie on several ranks, whose statistics are then added up between the two ops.
#include "config/config.h"
#include "device/program.h"

namespace moesaic::ops {

/// counts [num_scopes, E] i32 and prob_sums [num_scopes, E] f32 of this rank's tokens (written, zero where
/// none). indices [T, K] i32 (-1 is not counted), probs [T, E] f32, scope [T] i32.
/// Cost: E + 2 K operations a token. Of all ops here: every tensor once, what is added to twice.
struct BalanceCount {
  Handle indices, probs, scope, counts, prob_sums;
  Handle scratch;  // CUDA's working memory; filled in by the op
};
void balance_count(Program& g, Stream stream, const BalanceCount& args);

/// Per scope of N tokens: L = sum over groups d of f_d P_d, f_d = mean over the group's experts of E/(K N)
/// counts, P_d = sum over them of prob_sums / N (each expert its own group: E/K sum f P, 1 when balanced).
/// Adds coef * sum of the scopes' L to loss [1] f32, and writes grad [num_scopes, E] = coef * f_d(e) / N = d
/// loss / d probs. counts, prob_sums: of the whole scope. tokens_per_scope = N. coef includes 1 / (number of
/// scopes in the step). expert_groups: equal runs of neighbouring experts; 0 = each expert its own group.
/// Cost: 2 operations an expert and 6 a group, of each scope.
struct BalanceLoss {
  Handle counts, prob_sums, loss, grad;
  int64_t top_k = 0, expert_groups = 0, tokens_per_scope = 0;
  float coef = 0;
};
void balance_loss(Program& g, Stream stream, const BalanceLoss& args);

/// Adds coef * sum over tokens of lse^2 to loss [1] f32. Cost: 2 operations a token.
struct ZLoss {
  Handle lse, loss;
  float coef = 0;
};
void z_loss(Program& g, Stream stream, const ZLoss& args);

/// Capacity with dropping: of all_indices [N, K] i32 and all_scope [N] i32 (the tokens of whole scopes), each
/// group of E/expert_groups experts keeps its first `capacity` rows per scope, in order of token, then k. Tokens
/// are taken in the order order[0], order[1], ...: order [N] i32, optional, a permutation of 0 .. N - 1 (absent: 0,
/// 1, ...); it lets the rows kept not depend on which rank holds which token. Writes kept [T, K] = the indices of
/// tokens first .. first + T, -1 where dropped, and adds the number of their dropped rows to dropped [1] i32.
/// expert_groups as above; -1 entries stay -1. Cost: 3 operations an index of all_indices, 1 more of kept.
struct Capacity {
  Handle all_indices, all_scope, order, kept, dropped;
  int64_t first = 0, num_experts = 0, expert_groups = 0, num_scopes = 0, capacity = 0;
  Handle scratch;  // CUDA's working memory; filled in by the op
};
void capacity(Program& g, Stream stream, const Capacity& args);

/// totals [E] i32 += column sums of counts [num_scopes, E] i32. Cost: one operation a count.
struct AddCounts {
  Handle counts, totals;
};
void add_counts(Program& g, Stream stream, const AddCounts& args);

}  // namespace moesaic::ops
