#include "ops/dispatch_plan/dispatch_plan_bodies.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "ops/optional.h"

namespace moesaic::ops {
namespace {

/// What the first pass over the routing counts. Kept per thread, so that a step allocates nothing.
struct Counts {
  std::vector<int32_t> recv_row;    // [e * T] receive row of a group token, -1 when it does not come here
  std::vector<int32_t> recv_from;   // [e] tokens that come from each rank
  std::vector<int32_t> before;      // [e] tokens that ranks before this one send to each rank
  std::vector<int32_t> mine;        // [e] tokens that this rank sends to each rank
  std::vector<int32_t> last_token;  // [e] the group token last seen for each rank: a token is sent once
  std::vector<int32_t> next;        // [E_local] rows of each local expert; later the next row to give out
  int64_t asked = 0, received = 0;  // rows of the local experts, tokens that come here; both before any bound
};

struct Sizes {
  int64_t e, T, K, R, N;
  bool a2a;
};

void count(const DispatchPlan& args, const Sizes& z, const int32_t* indices, Counts& n) {
  n.recv_row.assign(static_cast<size_t>(z.e * z.T), -1);
  for (auto* per_rank : {&n.recv_from, &n.before, &n.mine}) per_rank->assign(static_cast<size_t>(z.e), 0);
  n.last_token.assign(static_cast<size_t>(z.e), -1);
  n.next.assign(static_cast<size_t>(args.num_local_experts), 0);
  n.asked = n.received = 0;
  for (int64_t source = 0; source < z.e; ++source)
    for (int64_t token = source * z.T; token < (source + 1) * z.T; ++token)
      for (int64_t k = 0; k < z.K; ++k) {
        const int32_t expert = indices[token * z.K + k];
        if (expert < 0) continue;
        const auto x = static_cast<size_t>(expert);
        MOESAIC_CHECK(x < args.owner.size(), "expert {} of {}", expert, args.owner.size());
        const auto to = static_cast<size_t>(args.owner[x]);
        const bool here = args.owner[x] == args.rank;
        int32_t& row = n.recv_row[static_cast<size_t>(token)];
        if (n.last_token[to] != token) {
          n.last_token[to] = static_cast<int32_t>(token);
          if (source < args.rank) ++n.before[to];
          if (source == args.rank) ++n.mine[to];
          if (here) {
            row = static_cast<int32_t>(z.a2a ? n.received : token);
            ++n.recv_from[static_cast<size_t>(source)];
            ++n.received;
          }
        }
        if (!here) continue;
        ++n.asked;
        if (row < z.N) ++n.next[static_cast<size_t>(args.local[x])];
      }
}

/// Gives out rows expert by expert; the order within an expert is that of this pass: sources in ring order.
void write_rows(const OpContext& c, const DispatchPlan& args, const Sizes& z, Counts& n) {
  int32_t* offsets = c.out<int32_t>(args.offsets);
  int64_t sum = 0;
  for (size_t i = 0; i < n.next.size(); ++i) {
    offsets[i] = static_cast<int32_t>(std::min(sum, z.R));
    const int64_t rows = n.next[i];
    n.next[i] = static_cast<int32_t>(sum);
    sum += rows;
  }
  offsets[n.next.size()] = static_cast<int32_t>(std::min(sum, z.R));

  const int32_t* indices = c.in<int32_t>(args.indices);
  int32_t *row_recv = c.out<int32_t>(args.row_recv), *row_slot = c.out<int32_t>(args.row_slot);
  int32_t *slot_row = c.out<int32_t>(args.slot_row), *own_token = out_or_null<int32_t>(c, args.own_token),
          *own_ends = out_or_null<int32_t>(c, args.own_ends);
  std::fill(slot_row, slot_row + z.e * z.T * z.K, -1);
  for (int64_t step = 0; step < z.e; ++step) {
    const int64_t source = (args.rank + step) % z.e;
    for (int64_t token = source * z.T; token < (source + 1) * z.T; ++token) {
      const int32_t recv_row = n.recv_row[static_cast<size_t>(token)];
      if (recv_row < 0 || recv_row >= z.N) continue;
      for (int64_t slot = token * z.K; slot < (token + 1) * z.K; ++slot) {
        const int32_t expert = indices[slot];
        if (expert < 0 || args.owner[static_cast<size_t>(expert)] != args.rank) continue;
        const int32_t row = n.next[static_cast<size_t>(args.local[static_cast<size_t>(expert)])]++;
        if (row >= z.R) continue;
        row_recv[row] = recv_row;
        row_slot[row] = static_cast<int32_t>(slot);
        slot_row[slot] = row;
        if (own_token != nullptr && step == 0) own_token[row] = static_cast<int32_t>(token - source * z.T);
      }
    }
    if (own_ends != nullptr && step == 0)
      for (size_t i = 0; i < n.next.size(); ++i)
        own_ends[i] = static_cast<int32_t>(std::min<int64_t>(n.next[i], z.R));
  }
}

void write_exchange(const OpContext& c, const DispatchPlan& args, const Sizes& z, Counts& n) {
  int32_t *recv_offsets = c.out<int32_t>(args.recv_offsets), *recv_token = c.out<int32_t>(args.recv_token);
  recv_offsets[0] = 0;
  int64_t sum = 0;
  for (int64_t p = 0; p < z.e; ++p) {
    sum += n.recv_from[static_cast<size_t>(p)];
    recv_offsets[p + 1] = static_cast<int32_t>(std::min(sum, z.N));
  }
  for (int64_t token = 0; token < z.e * z.T; ++token) {
    const int32_t row = n.recv_row[static_cast<size_t>(token)];
    if (row >= 0 && row < z.N) recv_token[row] = static_cast<int32_t>(token);
  }

  int32_t *send_offsets = c.out<int32_t>(args.send_offsets), *send_token = c.out<int32_t>(args.send_token);
  int32_t* token_send = c.out<int32_t>(args.token_send);
  std::fill(token_send, token_send + z.T * z.e, -1);
  send_offsets[0] = 0;
  for (int64_t r = 0; r < z.e; ++r) {
    const auto to = static_cast<size_t>(r);
    const int64_t room =
        std::max<int64_t>(0, z.N - n.before[to]);  // what earlier sources leave of r's buffer
    send_offsets[r + 1] = send_offsets[r] + static_cast<int32_t>(std::min<int64_t>(n.mine[to], room));
    n.mine[to] = send_offsets[r];  // from here on: the next row to give out
  }
  const int32_t* indices = c.in<int32_t>(args.indices) + args.rank * z.T * z.K;
  for (int64_t t = 0; t < z.T; ++t)
    for (int64_t k = 0; k < z.K; ++k) {
      const int32_t expert = indices[t * z.K + k];
      if (expert < 0) continue;
      const int32_t r = args.owner[static_cast<size_t>(expert)];
      int32_t& row = token_send[t * z.e + r];
      int32_t& next = n.mine[static_cast<size_t>(r)];
      if (row >= 0 || next == send_offsets[r + 1]) continue;
      row = next++;
      send_token[row] = static_cast<int32_t>(t);
    }
}

}  // namespace

void dispatch_plan_cpu(const OpContext& c, const DispatchPlan& args) {
  static thread_local Counts n;
  const Shape& indices = c.shape(args.indices);
  const int64_t tokens = indices.rows();
  const bool a2a = static_cast<bool>(args.recv_token);
  const Sizes z{args.e,
                tokens / args.e,
                indices[-1],
                c.shape(args.row_recv).numel(),
                a2a ? c.shape(args.recv_token).numel() : tokens,
                a2a};
  count(args, z, c.in<int32_t>(args.indices), n);
  write_rows(c, args, z, n);
  if (a2a) write_exchange(c, args, z, n);
  int32_t* overflow = c.inout<int32_t>(args.overflow);
  if (n.asked > z.R || (a2a && n.received > z.N))
    *overflow = std::max(*overflow, static_cast<int32_t>(n.asked));
}

}  // namespace moesaic::ops
