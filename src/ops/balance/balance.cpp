#include "ops/balance/balance.h"

#include <algorithm>

#include "ops/balance/balance_bodies.h"
#include "ops/op.h"

namespace moesaic::ops {
namespace {

void check(const Program& g, Handle h, DType type, int64_t count) {
  MOESAIC_CHECK(g.dtype(h) == type && g.shape(h).numel() == count, "{} is {} {}, expected {} elements of {}",
                g.info(h).name, name_of(g.dtype(h)), g.shape(h).str(), count, name_of(type));
}

void check_groups(int64_t num_experts, int64_t expert_groups) {
  MOESAIC_CHECK(expert_groups == 0 || num_experts % expert_groups == 0, "{} experts in {} groups",
                num_experts, expert_groups);
}

}  // namespace

int64_t balance_count_chunks(int64_t num_tokens, int64_t num_scopes) {
  // Enough blocks for a GPU, but not so many that their sums are as large as what is summed.
  return std::clamp<int64_t>(ceil_div(num_tokens, 64), 1, std::max<int64_t>(1, 1024 / num_scopes));
}

int64_t balance_count_scratch(int64_t num_tokens, int64_t num_scopes, int64_t num_experts) {
  const int64_t chunks = balance_count_chunks(num_tokens, num_scopes);
  return chunks == 1 ? 0 : 2 * 4 * round_up(chunks * num_scopes * num_experts, 4);
}

CapacityChunks capacity_chunks(const Capacity& args, int64_t num_tokens, int64_t num_kept, int64_t top_k) {
  constexpr int64_t kMostCounters = 1 << 22;  // of all chunks
  // Without an order nothing after the tokens that are kept matters.
  const int64_t slots = (args.order ? num_tokens : args.first + num_kept) * top_k;
  const int64_t counters =
      args.num_scopes * (args.expert_groups == 0 ? args.num_experts : args.expert_groups);
  const int64_t size = std::max<int64_t>(256, round_up(ceil_div(slots * counters, kMostCounters), 32));
  return {size, std::max<int64_t>(1, ceil_div(slots, size)), counters};
}

void balance_count(Program& g, Stream stream, const BalanceCount& args) {
  const int64_t T = g.shape(args.indices).rows(), E = g.shape(args.probs)[-1];
  check(g, args.indices, DType::i32, g.shape(args.indices).numel());
  check(g, args.probs, DType::f32, T * E);
  check(g, args.scope, DType::i32, T);
  check(g, args.counts, DType::i32, g.shape(args.counts).rows() * E);
  check(g, args.prob_sums, DType::f32, g.shape(args.counts).numel());
  BalanceCount with_scratch = args;
  with_scratch.scratch =
      scratch(g, "balance_count", balance_count_scratch(T, g.shape(args.counts).rows(), E));
  g.add({.name = "balance_count",
         .streams = {stream},
         .accesses = accesses({in(args.indices), in(args.probs), in(args.scope), out(args.counts),
                               out(args.prob_sums), out(with_scratch.scratch)}),
         .cost = {.operations = elements(g, args.probs) + 2 * elements(g, args.indices),
                  .bytes = bytes_of(g, {args.indices, args.probs, args.scope, args.counts, args.prob_sums})},
         .run = body(g, balance_count_cpu, balance_count_cuda, with_scratch)});
}

void balance_loss(Program& g, Stream stream, const BalanceLoss& args) {
  const Shape& counts = g.shape(args.counts);
  check(g, args.counts, DType::i32, counts.numel());
  check(g, args.prob_sums, DType::f32, counts.numel());
  check(g, args.grad, DType::f32, counts.numel());
  check(g, args.loss, DType::f32, 1);
  check_groups(counts[-1], args.expert_groups);
  MOESAIC_CHECK(args.top_k > 0 && args.tokens_per_scope > 0);
  const int64_t groups = args.expert_groups == 0 ? counts[-1] : args.expert_groups;
  g.add(
      {.name = "balance_loss",
       .streams = {stream},
       .accesses = {in(args.counts), in(args.prob_sums), inout(args.loss), out(args.grad)},
       .cost = {.operations = 2 * elements(g, args.counts) + 6 * static_cast<double>(counts.rows() * groups),
                .bytes = bytes_of(g, {args.counts, args.prob_sums, args.loss, args.loss, args.grad})},
       .run = body(g, balance_loss_cpu, balance_loss_cuda, args)});
}

void z_loss(Program& g, Stream stream, const ZLoss& args) {
  check(g, args.lse, DType::f32, g.shape(args.lse).numel());
  check(g, args.loss, DType::f32, 1);
  g.add({.name = "z_loss",
         .streams = {stream},
         .accesses = {in(args.lse), inout(args.loss)},
         .cost = {.operations = 2 * elements(g, args.lse),
                  .bytes = bytes_of(g, {args.lse, args.loss, args.loss})},
         .run = body(g, z_loss_cpu, z_loss_cuda, args)});
}

void capacity(Program& g, Stream stream, const Capacity& args) {
  const Shape &all = g.shape(args.all_indices), &kept = g.shape(args.kept);
  check(g, args.all_indices, DType::i32, all.numel());
  check(g, args.all_scope, DType::i32, all.rows());
  if (args.order) check(g, args.order, DType::i32, all.rows());
  check(g, args.kept, DType::i32, kept.rows() * all[-1]);
  check(g, args.dropped, DType::i32, 1);
  check_groups(args.num_experts, args.expert_groups);
  MOESAIC_CHECK(args.first >= 0 && args.first + kept.rows() <= all.rows(), "tokens {} .. {} of {}",
                args.first, args.first + kept.rows(), all.rows());
  MOESAIC_CHECK(args.num_experts > 0 && args.num_scopes > 0 && args.capacity >= 0);
  Capacity with_scratch = args;
  const CapacityChunks chunks = capacity_chunks(args, all.rows(), kept.rows(), all[-1]);
  with_scratch.scratch = scratch(g, "capacity", 4 * chunks.count * chunks.num_counters);
  g.add({.name = "capacity",
         .streams = {stream},
         .accesses = accesses({in(args.all_indices), in(args.all_scope), in(args.order), out(args.kept),
                               inout(args.dropped), out(with_scratch.scratch)}),
         .cost = {.operations = 3 * elements(g, args.all_indices) + elements(g, args.kept),
                  .bytes = bytes_of(g, {args.all_indices, args.all_scope, args.order, args.kept, args.dropped,
                                        args.dropped})},
         .run = body(g, capacity_cpu, capacity_cuda, with_scratch)});
}

void add_counts(Program& g, Stream stream, const AddCounts& args) {
  check(g, args.counts, DType::i32, g.shape(args.counts).numel());
  check(g, args.totals, DType::i32, g.shape(args.counts)[-1]);
  g.add({.name = "add_counts",
         .streams = {stream},
         .accesses = {in(args.counts), inout(args.totals)},
         .cost = {.operations = elements(g, args.counts),
                  .bytes = bytes_of(g, {args.counts, args.totals, args.totals})},
         .run = body(g, add_counts_cpu, add_counts_cuda, args)});
}

}  // namespace moesaic::ops
