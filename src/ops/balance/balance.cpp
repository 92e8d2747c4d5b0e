#include "ops/balance/balance.h"

#include "ops/balance/balance_cpu.h"
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

void balance_count(Program& g, Stream stream, const BalanceCount& args) {
  const int64_t T = g.shape(args.indices).rows(), E = g.shape(args.probs)[-1];
  check(g, args.indices, DType::i32, g.shape(args.indices).numel());
  check(g, args.probs, DType::f32, T * E);
  check(g, args.scope, DType::i32, T);
  check(g, args.counts, DType::i32, g.shape(args.counts).rows() * E);
  check(g, args.prob_sums, DType::f32, g.shape(args.counts).numel());
  g.add(
      {.name = "balance_count",
       .streams = {stream},
       .accesses = {in(args.indices), in(args.probs), in(args.scope), out(args.counts), out(args.prob_sums)},
       .cost = {.bytes = bytes_of(g, {args.indices, args.probs, args.scope, args.counts, args.prob_sums})},
       .run = body(g, balance_count_cpu, args)});
}

void balance_loss(Program& g, Stream stream, const BalanceLoss& args) {
  const Shape& counts = g.shape(args.counts);
  check(g, args.counts, DType::i32, counts.numel());
  check(g, args.prob_sums, DType::f32, counts.numel());
  check(g, args.grad, DType::f32, counts.numel());
  check(g, args.loss, DType::f32, 1);
  check_groups(counts[-1], args.expert_groups);
  MOESAIC_CHECK(args.top_k > 0 && args.tokens_per_scope > 0);
  g.add({.name = "balance_loss",
         .streams = {stream},
         .accesses = {in(args.counts), in(args.prob_sums), inout(args.loss), out(args.grad)},
         .cost = {.bytes = bytes_of(g, {args.counts, args.prob_sums, args.loss, args.grad})},
         .run = body(g, balance_loss_cpu, args)});
}

void z_loss(Program& g, Stream stream, const ZLoss& args) {
  check(g, args.lse, DType::f32, g.shape(args.lse).numel());
  check(g, args.loss, DType::f32, 1);
  g.add({.name = "z_loss",
         .streams = {stream},
         .accesses = {in(args.lse), inout(args.loss)},
         .cost = {.bytes = bytes_of(g, {args.lse, args.loss})},
         .run = body(g, z_loss_cpu, args)});
}

void capacity(Program& g, Stream stream, const Capacity& args) {
  const Shape &all = g.shape(args.all_indices), &kept = g.shape(args.kept);
  check(g, args.all_indices, DType::i32, all.numel());
  check(g, args.all_scope, DType::i32, all.rows());
  check(g, args.kept, DType::i32, kept.rows() * all[-1]);
  check(g, args.dropped, DType::i32, 1);
  check_groups(args.num_experts, args.expert_groups);
  MOESAIC_CHECK(args.first >= 0 && args.first + kept.rows() <= all.rows(), "tokens {} .. {} of {}",
                args.first, args.first + kept.rows(), all.rows());
  MOESAIC_CHECK(args.num_experts > 0 && args.num_scopes > 0 && args.capacity >= 0);
  g.add({.name = "capacity",
         .streams = {stream},
         .accesses = {in(args.all_indices), in(args.all_scope), out(args.kept), inout(args.dropped)},
         .cost = {.bytes = bytes_of(g, {args.all_indices, args.all_scope, args.kept, args.dropped})},
         .run = body(g, capacity_cpu, args)});
}

void add_counts(Program& g, Stream stream, const AddCounts& args) {
  check(g, args.counts, DType::i32, g.shape(args.counts).numel());
  check(g, args.totals, DType::i32, g.shape(args.counts)[-1]);
  g.add({.name = "add_counts",
         .streams = {stream},
         .accesses = {in(args.counts), inout(args.totals)},
         .cost = {.bytes = bytes_of(g, {args.counts, args.totals})},
         .run = body(g, add_counts_cpu, args)});
}

}  // namespace moesaic::ops
