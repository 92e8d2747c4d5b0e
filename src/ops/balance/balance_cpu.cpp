#include "ops/balance/balance_bodies.h"

#include <algorithm>
#include <vector>

#include "ops/cpu_op.h"

namespace moesaic::ops {
namespace {

/// Experts per group; 0 groups = each expert alone.
int64_t group_size(int64_t num_experts, int64_t expert_groups) {
  return expert_groups == 0 ? 1 : num_experts / expert_groups;
}

}  // namespace

void balance_count_cpu(const OpContext& c, const BalanceCount& args) {
  const int64_t T = c.shape(args.indices).rows(), K = c.shape(args.indices)[-1], E = c.shape(args.probs)[-1];
  const int32_t *indices = c.in<int32_t>(args.indices), *scope = c.in<int32_t>(args.scope);
  const float* probs = c.in<float>(args.probs);
  int32_t* counts = c.out<int32_t>(args.counts);
  float* prob_sums = c.out<float>(args.prob_sums);
  std::fill_n(counts, c.shape(args.counts).numel(), 0);
  std::fill_n(prob_sums, c.shape(args.prob_sums).numel(), 0.0f);
  for (int64_t t = 0; t < T; ++t) {
    int32_t* count = counts + scope[t] * E;
    float* sum = prob_sums + scope[t] * E;
    for (int64_t k = 0; k < K; ++k)
      if (indices[t * K + k] >= 0) ++count[indices[t * K + k]];
    for (int64_t x = 0; x < E; ++x) sum[x] += probs[t * E + x];
  }
}

void balance_loss_cpu(const OpContext& c, const BalanceLoss& args) {
  const int64_t E = c.shape(args.counts)[-1], scopes = c.shape(args.counts).rows();
  const int64_t size = group_size(E, args.expert_groups);
  const int32_t* counts = c.in<int32_t>(args.counts);
  const float* prob_sums = c.in<float>(args.prob_sums);
  float* grad = c.out<float>(args.grad);
  const auto N = static_cast<double>(args.tokens_per_scope);
  const double per_count = static_cast<double>(E) / (static_cast<double>(args.top_k * size) * N);
  double loss = 0;
  for (int64_t group = 0; group < scopes * E; group += size) {
    int64_t count = 0;
    double prob_sum = 0;
    for (int64_t i = group; i < group + size; ++i) {
      count += counts[i];
      prob_sum += prob_sums[i];
    }
    const double f = per_count * static_cast<double>(count);
    loss += f * prob_sum / N;
    std::fill_n(grad + group, size, static_cast<float>(args.coef * f / N));
  }
  *c.inout<float>(args.loss) += static_cast<float>(args.coef * loss);
}

void z_loss_cpu(const OpContext& c, const ZLoss& args) {
  const float* lse = c.in<float>(args.lse);
  double sum = 0;
  for (int64_t t = 0; t < c.shape(args.lse).numel(); ++t) sum += double{lse[t]} * lse[t];
  *c.inout<float>(args.loss) += static_cast<float>(args.coef * sum);
}

void capacity_cpu(const OpContext& c, const Capacity& args) {
  static thread_local std::vector<int64_t> used;  // [num_scopes, groups] rows kept so far
  const int64_t K = c.shape(args.all_indices)[-1], size = group_size(args.num_experts, args.expert_groups);
  const int64_t groups = args.num_experts / size, T = c.shape(args.kept).rows(),
                N = c.shape(args.all_indices).rows();
  const int32_t *indices = c.in<int32_t>(args.all_indices), *scope = c.in<int32_t>(args.all_scope);
  const int32_t* order = in_or_null<int32_t>(c, args.order);
  int32_t* kept = c.out<int32_t>(args.kept);
  used.assign(static_cast<size_t>(args.num_scopes * groups), 0);
  int32_t dropped = 0;
  int64_t left = T;  // of this rank's tokens; those of others that come later change nothing here
  for (int64_t i = 0; i < N && left > 0; ++i) {
    const int64_t t = order ? order[i] : i;
    const bool mine = t >= args.first && t < args.first + T;
    left -= mine;
    for (int64_t k = 0; k < K; ++k) {
      const int32_t expert = indices[t * K + k];
      const bool keep =
          expert >= 0 && used[static_cast<size_t>(scope[t] * groups + expert / size)]++ < args.capacity;
      if (!mine) continue;
      kept[(t - args.first) * K + k] = keep ? expert : -1;
      dropped += expert >= 0 && !keep;
    }
  }
  *c.inout<int32_t>(args.dropped) += dropped;
}

void add_counts_cpu(const OpContext& c, const AddCounts& args) {
  const int64_t E = c.shape(args.counts)[-1];
  const int32_t* counts = c.in<int32_t>(args.counts);
  int32_t* totals = c.inout<int32_t>(args.totals);
  for (int64_t row = 0; row < c.shape(args.counts).rows(); ++row)
    for (int64_t x = 0; x < E; ++x) totals[x] += counts[row * E + x];
}

}  // namespace moesaic::ops
