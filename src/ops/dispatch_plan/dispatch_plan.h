#pragma once
// Who sends which rows to whom, by prefix sums over the routing that every rank of the expert group knows. No
// atomics, so repeats are bit-equal.
//
// Rows of this rank: every (token, k) of the group whose expert lives here, ordered by local expert, then
// source rank in ring order from self (self, self + 1, ...), then token, then k. A token that goes to several
// experts of one rank is sent once. Receive buffer: a2a: the tokens that some rank sends here, ordered by
// source rank 0, 1, ..., then token; ag_rs: all tokens of the group, so receive row = group token.
#include <vector>

#include "device/program.h"

namespace moesaic::ops {

/// indices: i32 [e * T, K], the group's choices in rank order (group token = source rank * T + token), -1 =
/// dropped. Written (i32):
///   offsets [E_local + 1]     rows of each local expert; capped at R
///   row_recv [R]              receive row that row r reads
///   row_slot [R]              group token * K + k of row r
///   slot_row [e * T, K]       row of that (token, k) here, -1 when elsewhere, dropped or left out
///   own_ends [E_local]        where the rows of this rank's own tokens end: expert x has them in offsets[x] .. own_ends[x]
///   own_token [R]             local token of row r, for these rows alone (optional; both or none)
///   overflow [1]              inout: max with the number of rows that routing asked for, when that is above
///                             R or (a2a) more tokens come than the receive buffer holds
/// and for a2a only (absent for ag_rs):
///   send_token [S_max]        local token of each row to send, ordered by destination, then token;
///                             S_max = T min(K, e)
///   send_offsets [e + 1]      rows for each destination, capped as its receive buffer is
///   recv_offsets [e + 1]      rows from each source, capped at the receive buffer's N rows
///   recv_token [N]            group token of each receive row
///   token_send [T, e]         send row of (token, destination), -1 when not sent there
/// R, N and S_max are the handles' sizes, the same on every rank. Past a bound the first rows in row order
/// stay and the others are left out; elements past the last row are not written. owner[x], local[x]: e-index
/// and local number of expert x (ExpertPlacement).
/// Cost: 2 operations an index, and 2 (a2a 8) for each of the T K choices that come here and go out when routing is balanced
/// and no token has two experts on one rank; every tensor once, overflow twice.
struct DispatchPlan {
  Handle indices, offsets, row_recv, row_slot, slot_row, overflow;
  Handle own_ends, own_token;
  Handle send_token, send_offsets, recv_offsets, recv_token, token_send;
  std::vector<int32_t> owner, local;
  int64_t e = 1, rank = 0, num_local_experts = 0;
  Handle scratch;  // CUDA's working memory; filled in by the op
};
void dispatch_plan(Program& g, Stream stream, const DispatchPlan& args);

}  // namespace moesaic::ops
