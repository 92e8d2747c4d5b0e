#include "layers/dispatch.h"

#include <algorithm>

#include "comm/collectives.h"
#include "ops/balance/balance.h"
#include "ops/dispatch_plan/dispatch_plan.h"
#include "ops/elementwise/elementwise.h"
#include "ops/rows/rows.h"

namespace moesaic {
namespace {

constexpr Stream kCompute = Stream::compute, kComm = Stream::comm;

/// Calls f(field, name) for each kept table of a Dispatched.
template <class F>
void for_each_table(const LayerSpec& spec, Dispatched& d, const F& f) {
  f(d.group_indices, "group_indices");
  f(d.group_weights, "group_weights");
  f(d.offsets, "offsets");
  f(d.row_recv, "row_recv");
  f(d.row_slot, "row_slot");
  f(d.slot_row, "slot_row");
  if (receives_in_parts(spec)) {
    f(d.own_ends, "own_ends");
    f(d.own_token, "own_token");
  }
  if (!spec.a2a()) return;
  f(d.send_token, "send_token");
  f(d.send_offsets, "send_offsets");
  f(d.recv_offsets, "recv_offsets");
  f(d.recv_token, "recv_token");
  f(d.token_send, "token_send");
}

int64_t max_send(const LayerSpec& s) {
  return s.T * std::min(s.model.top_k, s.e);
}

/// Rows that a rank sends (and receives) when routing is uniform: a token meets e (1 - (1 - 1/e)^K) ranks, about.
double expected_sent(const LayerSpec& s) {
  double missed = 1;
  for (int64_t k = 0; k < s.model.top_k; ++k) missed *= 1 - 1 / static_cast<double>(s.e);
  return static_cast<double>(s.T * s.e) * (1 - missed);
}

}  // namespace

void add_dispatch_activations(ActivationTable& table, const LayerSpec& s) {
  const auto ints = [&](const std::string& name, const std::string& letters, Shape shape) {
    table.add({name, letters, shape, DType::i32, Keep::always, ""});
  };
  const int64_t K = s.model.top_k, slots = s.e * s.T * K;
  ints("group_indices", "eT K", {s.e * s.T, K});
  table.add({"group_weights", "eT K", {s.e * s.T, K}, DType::f32, Keep::always, ""});
  ints("offsets", "E/e+1", {s.num_local_experts + 1});
  ints("row_recv", "R", {s.max_rows});
  ints("row_slot", "R", {s.max_rows});
  ints("slot_row", "eT K", {slots / K, K});
  if (receives_in_parts(s)) {
    ints("own_ends", "E/e", {s.num_local_experts});
    ints("own_token", "R", {s.max_rows});
  }
  if (!s.a2a()) return;
  ints("send_token", "T min(K,e)", {max_send(s)});
  ints("send_offsets", "e+1", {s.e + 1});
  ints("recv_offsets", "e+1", {s.e + 1});
  ints("recv_token", "N", {s.max_recv});
  ints("token_send", "T e", {s.T, s.e});
}

Dispatched plan_dispatch(Pass& p, Handle indices, Handle weights) {
  p.g.segment("dispatch");
  const LayerSpec& s = p.spec;
  const LayerStats stats(p.g, p.slots, s.model.num_experts);
  Dispatched d;
  for_each_table(s, d, [&](Handle& h, const char* name) { h = p.acts.make(name); });
  if (s.e > 1) {
    comm::all_gather(p.g, kComm, *s.groups.e, indices, d.group_indices, "routing");
    comm::all_gather(p.g, kComm, *s.groups.e, weights, d.group_weights, "gate weights");
  } else {
    ops::copy(p.g, kCompute, indices, d.group_indices);
    ops::copy(p.g, kCompute, weights, d.group_weights);
  }
  ops::DispatchPlan plan{.indices = d.group_indices,
                         .offsets = d.offsets,
                         .row_recv = d.row_recv,
                         .row_slot = d.row_slot,
                         .slot_row = d.slot_row,
                         .overflow = stats.overflow,
                         .own_ends = d.own_ends,
                         .own_token = d.own_token,
                         .send_token = d.send_token,
                         .send_offsets = d.send_offsets,
                         .recv_offsets = d.recv_offsets,
                         .recv_token = d.recv_token,
                         .token_send = d.token_send,
                         .owner = {},
                         .local = {},
                         .e = s.e,
                         .rank = s.e_rank,
                         .num_local_experts = s.num_local_experts};
  for (int64_t expert = 0; expert < s.model.num_experts; ++expert) {
    plan.owner.push_back(static_cast<int32_t>(s.placement.owner(expert)));
    plan.local.push_back(static_cast<int32_t>(s.placement.slot(expert)));
  }
  ops::dispatch_plan(p.g, kCompute, plan);
  if (p.training && s.layout.on_overflow == OverflowPolicy::drop)  // what is missing has been left out
    ops::add_counts(p.g, kCompute,
                    {.counts = p.g.view(d.offsets, s.num_local_experts, {1, 1}), .totals = stats.rows});
  return d;
}

Dispatched kept_dispatch(Pass& p) {
  Dispatched d;
  for_each_table(p.spec, d, [&](Handle& h, const char* name) { h = p.acts.kept(name); });
  return d;
}

void send_tokens(Pass& p, const Dispatched& d, Handle x, Handle recv, const std::string& what) {
  const LayerSpec& s = p.spec;
  if (s.e == 1) return;
  if (s.ag_rs()) return comm::all_gather(p.g, kComm, *s.groups.e, x, recv, what);
  const Handle send = p.temp("send " + what, {max_send(s), p.g.shape(x)[-1]});
  ops::gather_rows(p.g, kCompute,
                   {.x = x,
                    .map = d.send_token,
                    .count_of = d.send_offsets,
                    .y = send,
                    .expected_rows = expected_sent(s)});
  comm::all_to_all_rows(p.g, kComm, *s.groups.e, send, d.send_offsets, recv, d.recv_offsets, expected_sent(s),
                        what);
}

void return_rows(Pass& p, const Dispatched& d, Handle rows, Handle add, Handle y, const std::string& what,
                 const std::function<void()>& meanwhile) {
  const LayerSpec& s = p.spec;
  const int64_t width = p.g.shape(rows)[-1];
  if (s.e == 1) {
    meanwhile();
    return ops::sum_rows(
        p.g, kCompute,
        {.x = rows, .map = d.slot_row, .add = add, .y = y, .expected_rows = s.expected_rows()});
  }
  // A token's rows on this rank first, so that it returns once.
  const Handle sums = p.temp("sums " + what, {s.max_recv, width});
  if (s.ag_rs()) {
    const auto sum_tokens = [&](int64_t first, int64_t count) {  // of the group
      if (count == 0) return;
      const int64_t K = s.model.top_k;
      ops::sum_rows(
          p.g, kCompute,
          {.x = rows,
           .map = p.g.view(d.slot_row, first * K, {count, K}),
           .y = p.g.view(sums, first * width, {count, width}),
           .expected_rows = s.expected_rows() * static_cast<double>(count) / static_cast<double>(s.e * s.T)});
    };
    const int64_t all = s.e * s.T, own = s.e_rank * s.T, behind = own + s.T;
    const bool in_parts = returns_in_parts(s);
    sum_tokens(0, in_parts ? own : all);
    if (in_parts) sum_tokens(behind, all - behind);
    // Moved, then summed here: copies take no multiprocessor from what runs meanwhile.
    const Handle others = p.temp("others " + what, {(s.e - 1) * s.T, width});
    comm::exchange_parts(p.g, kComm, *s.groups.e, sums, others, what);
    meanwhile();
    if (in_parts) sum_tokens(own, s.T);
    return ops::sum_parts(p.g, kCompute,
                          {.own = p.g.view(sums, own * width, {s.T, width}),
                           .others = others,
                           .add = add,
                           .y = y,
                           .rank = s.e_rank});
  }
  ops::sum_rows(p.g, kCompute,
                {.x = rows,
                 .map = d.slot_row,
                 .map_row = d.recv_token,
                 .count_of = d.recv_offsets,
                 .y = sums,
                 .expected_rows = s.expected_rows()});
  const Handle back = p.temp("back " + what, {max_send(s), width});
  comm::all_to_all_rows(p.g, kComm, *s.groups.e, sums, d.recv_offsets, back, d.send_offsets, expected_sent(s),
                        what);
  meanwhile();
  ops::sum_rows(p.g, kCompute,
                {.x = back, .map = d.token_send, .add = add, .y = y, .expected_rows = expected_sent(s)});
}

}  // namespace moesaic
