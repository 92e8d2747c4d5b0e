#include "ops/dispatch_plan/dispatch_plan.h"

#include <algorithm>

#include "ops/dispatch_plan/dispatch_plan_cpu.h"
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

void dispatch_plan(Program& g, Stream stream, const DispatchPlan& args) {
  const Shape& indices = g.shape(args.indices);
  MOESAIC_CHECK(args.e > 0 && args.rank >= 0 && args.rank < args.e, "rank {} of {}", args.rank, args.e);
  const int64_t K = indices[-1], T = div_exact(indices.rows(), args.e);
  check_placement(args);
  MOESAIC_CHECK(g.shape(args.offsets).numel() == args.num_local_experts + 1);
  MOESAIC_CHECK(g.shape(args.row_recv).numel() == g.shape(args.row_slot).numel());
  MOESAIC_CHECK(g.shape(args.slot_row).numel() == indices.numel() && g.shape(args.overflow).numel() == 1);
  for (Handle h : {args.indices, args.offsets, args.row_recv, args.row_slot, args.slot_row, args.overflow})
    MOESAIC_CHECK(g.dtype(h) == DType::i32, "{}", g.info(h).name);
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
  g.add({.name = "dispatch_plan",
         .streams = {stream},
         .accesses =
             accesses({in(args.indices), out(args.offsets), out(args.row_recv), out(args.row_slot),
                       out(args.slot_row), inout(args.overflow), out(args.send_token), out(args.send_offsets),
                       out(args.recv_offsets), out(args.recv_token), out(args.token_send)}),
         .cost = {.bytes = bytes_of(g, {args.indices, args.offsets, args.row_recv, args.row_slot,
                                        args.slot_row, args.overflow, args.send_token, args.send_offsets,
                                        args.recv_offsets, args.recv_token, args.token_send})},
         .run = body(g, dispatch_plan_cpu, args)});
}

}  // namespace moesaic::ops
