#pragma once
// Tokens to the ranks that hold their experts, and rows back to their tokens. Dispatch makes the handle that combine
// consumes; each is the other's backward:
//
//   forward    tokens of ln2_out --send_tokens--> experts --return_rows--> sum per token
//   backward   tokens of d_out   --send_tokens--> experts --return_rows--> sum per token
//
// a2a: a token is sent once to every rank that holds one of its experts (all-to-all of rows). ag_rs: all tokens of the
// group are gathered, and partial sums are reduce-scattered back. One rank (e = 1): its own tokens are the buffer.
#include "layers/pass.h"

namespace moesaic {

/// The tables of ops/dispatch_plan, kept from the forward to the backward pass, and the routing of the whole group.
struct Dispatched {
  Handle group_indices, group_weights;                                    // [e T, K] i32, f32
  Handle offsets, row_recv, row_slot, slot_row;                           // rows of this rank's experts
  Handle own_ends, own_token;                                             // in parts: those of its own tokens
  Handle send_token, send_offsets, recv_offsets, recv_token, token_send;  // a2a only
};

void add_dispatch_activations(ActivationTable& table, const LayerSpec& spec);

/// Records the exchange of routing and the plan: indices [T, K] (-1 = dropped), weights [T, K] f32 of this rank's tokens.
Dispatched plan_dispatch(Pass& p, Handle indices, Handle weights);
/// The same handle in the backward pass, from what was kept.
Dispatched kept_dispatch(Pass& p);

/// Records sending x [T, W] to the experts' ranks; recv [rows of the receive buffer, W].
void send_tokens(Pass& p, const Dispatched& d, Handle x, Handle recv, const std::string& what);
/// The receive buffer for x: x itself with one rank, else what `make` gives (called once).
template <class Make>
Handle receive_buffer(const LayerSpec& spec, Handle x, Make&& make) {
  return spec.e == 1 ? x : make();
}
/// Whether products of received tokens are made for the rank's own tokens first.
inline bool receives_in_parts(const LayerSpec& spec) {
  return spec.e > 1 && spec.in_parts();
}
/// Whether return_rows sends the sums of other ranks' tokens before it needs the rows of this rank's own.
inline bool returns_in_parts(const LayerSpec& spec) {
  return spec.ag_rs() && spec.in_parts();
}
/// Records y [T, W] = add [T, W] + sum over each token's expert rows, wherever they are. rows [R, W]; `add` optional.
/// `meanwhile` records what does not depend on it, once communication is under way; if it returns in parts, also the rows of own
/// tokens (Dispatched::own_ends) may be made there.
void return_rows(
    Pass& p, const Dispatched& d, Handle rows, Handle add, Handle y, const std::string& what,
    const std::function<void()>& meanwhile = [] {});

}  // namespace moesaic
