#include "ops/dispatch_plan/dispatch_plan.h"

#include <algorithm>

#include "ops/dispatch_plan/dispatch_plan_bodies.h"
#include "ops/op.h"

namespace moesaic::ops {
namespace {

void check_placement(const DispatchPlan& args) {
  MOESAIC_CHECK(args.owner.size() == args.local.size());
  for (size_t x = 0; x < args.owner.size(); ++x) {
    MOESAIC_CHECK(args.owner[x] >= 0 && args.owner[x] < args.e, "expert {} on rank {} of {}", x,
                  args.owner[x], args.e);
    MOESAIC_CHECK(
        args.owner[x] != args.rank || (args.local[x] >= 0 && args.local[x] < args.num_local_experts),
        "expert {} is local expert {} of {}", x, args.local[x], args.num_local_experts);
  }
}

}  // namespace

PlanChunks plan_chunks(int64_t e, int64_t tokens_per_rank, int64_t top_k) {
  // Short chunks spread small plans over the GPU; many of them would make the tables of large ones slow to scan.
  const int64_t slots = std::max<int64_t>(128, e * tokens_per_rank * top_k / 2048);
  const int64_t tokens = std::max<int64_t>(1, slots / top_k);
  const int64_t per_rank = std::max<int64_t>(1, ceil_div(tokens_per_rank, tokens));
  return {tokens, per_rank, e * per_rank};
}

int64_t dispatch_plan_scratch(const PlanChunks& chunks, int64_t e, int64_t num_local_experts, bool a2a) {
  // Counts and their sums per chunk, and two totals per expert.
  const int64_t experts = num_local_experts * (2 * chunks.count + 2), ranks = e * (2 * chunks.count + 1);
  return 4 * (experts + (a2a ? ranks : 0));
}

void dispatch_plan(Program& g, Stream stream, const DispatchPlan& args) {
  const Shape indices = g.shape(args.indices);
  MOESAIC_CHECK(args.e > 0 && args.rank >= 0 && args.rank < args.e, "rank {} of {}", args.rank, args.e);
  const int64_t K = indices[-1], T = div_exact(indices.rows(), args.e);
  check_placement(args);
  MOESAIC_CHECK(g.shape(args.offsets).numel() == args.num_local_experts + 1);
  MOESAIC_CHECK(g.shape(args.row_recv).numel() == g.shape(args.row_slot).numel());
  MOESAIC_CHECK(g.shape(args.slot_row).numel() == indices.numel() && g.shape(args.overflow).numel() == 1);
  for (Handle h : {args.indices, args.offsets, args.row_recv, args.row_slot, args.slot_row, args.overflow})
    MOESAIC_CHECK(g.dtype(h) == DType::i32, "{}", g.info(h).name);
  MOESAIC_CHECK(bool(args.own_ends) == bool(args.own_token), "the two tensors of own tokens come together");
  if (args.own_ends) {
    MOESAIC_CHECK(g.shape(args.own_ends).numel() == args.num_local_experts);
    MOESAIC_CHECK(g.shape(args.own_token).numel() == g.shape(args.row_recv).numel());
    MOESAIC_CHECK(g.dtype(args.own_ends) == DType::i32 && g.dtype(args.own_token) == DType::i32);
  }
  const auto exchange = {args.send_token, args.send_offsets, args.recv_offsets, args.recv_token,
                         args.token_send};
  for (Handle h : exchange) {
    MOESAIC_CHECK(bool(h) == bool(args.recv_token), "the five tensors of a2a come together");
    MOESAIC_CHECK(!h || g.dtype(h) == DType::i32, "{}", g.info(h).name);
  }
  if (args.recv_token) {
    MOESAIC_CHECK(g.shape(args.send_token).numel() >= T * std::min(K, args.e));
    MOESAIC_CHECK(g.shape(args.send_offsets).numel() == args.e + 1);
    MOESAIC_CHECK(g.shape(args.recv_offsets).numel() == args.e + 1);
    MOESAIC_CHECK(g.shape(args.token_send).numel() == T * args.e);
  }
  DispatchPlan planned = args;
  if (g.device() == DeviceKind::cuda) {
    MOESAIC_CHECK(static_cast<int64_t>(args.owner.size()) <= kMostPlanned && args.e <= kMostPlanned &&
                      args.num_local_experts <= kMostPlanned,
                  "{} experts on {} ranks", args.owner.size(), args.e);
    planned.scratch = scratch(g, "dispatch_plan",
                              dispatch_plan_scratch(plan_chunks(args.e, T, K), args.e, args.num_local_experts,
                                                    static_cast<bool>(args.recv_token)));
  }
  g.add({.name = "dispatch_plan",
         .streams = {stream},
         .accesses =
             accesses({in(args.indices), out(args.offsets), out(args.row_recv), out(args.row_slot),
                       out(args.slot_row), inout(args.overflow), out(args.own_ends), out(args.own_token),
                       out(args.send_token), out(args.send_offsets), out(args.recv_offsets),
                       out(args.recv_token), out(args.token_send), out(planned.scratch)}),
         .cost = {.operations = 2 * elements(g, args.indices) +
                                (args.recv_token ? 8.0 : 2.0) * static_cast<double>(T * K),
                  .bytes = bytes_of(
                      g, {args.indices, args.offsets, args.row_recv, args.row_slot, args.slot_row,
                          args.overflow, args.overflow, args.own_ends, args.own_token, args.send_token,
                          args.send_offsets, args.recv_offsets, args.recv_token, args.token_send})},
         .run = body(g, dispatch_plan_cpu, dispatch_plan_cuda, planned)});
}

}  // namespace moesaic::ops
