#pragma once
// A pipeline schedule as data: for each pipeline stage's rank, the actions of one optimizer step in the order
// in which it starts them. One executor walks any of them; check.h proves what a schedule must hold.
//
// The layers are cut into `num_chunks` chunks, numbered from the embedding to the head; a rank owns one or
// more of them.
//
//   action            what it does                                                     fields
//   forward           chunk over a micro-batch, keeping what the backward needs        chunk, micro_batch
//   backward          both halves below at once                                        chunk, micro_batch
//   backward_input    gradient of the chunk's input                                    chunk, micro_batch
//   backward_weight   gradient of the chunk's weights; frees what forward kept         chunk, micro_batch
//   send_activation   chunk's output to the owner of chunk + 1                         chunk, micro_batch,
//   peer recv_activation   chunk's input from the owner of chunk - 1                        chunk,
//   micro_batch, peer send_gradient     gradient of chunk's input to the owner of chunk - 1 chunk,
//   micro_batch, peer recv_gradient     gradient of chunk's output from the owner of chunk + 1 chunk,
//   micro_batch, peer reduce            gradients of the chunk over its replicas chunk step optimizer update
//   of all the rank's chunks gather            updated parameters of the chunk back to its replicas chunk
//
// Sends do not wait for their receive. Between two ranks, activations arrive in the order sent, and so do
// gradients.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moesaic {

enum class ActionKind {
  forward,
  backward,
  backward_input,
  backward_weight,
  send_activation,
  recv_activation,
  send_gradient,
  recv_gradient,
  reduce,
  gather,
  step
};

struct Action {
  ActionKind kind = ActionKind::forward;
  int64_t chunk = 0;
  int64_t micro_batch = 0;
  int64_t peer = -1;  // pipeline rank at the other end of a send or receive
  bool operator==(const Action&) const = default;
};

struct Schedule {
  int64_t num_chunks = 0;
  int64_t num_micro_batches = 0;
  std::vector<std::vector<Action>> ranks;  // [pp][...]
};

enum class ScheduleKind { one_forward_one_backward };

/// Pure: the same arguments give the same schedule on every rank. Each chunk is reduced as soon as its last
/// gradient is there. Throws ConfigError unless pp = 1 and the counts are at least 1.
Schedule make_schedule(ScheduleKind kind, int64_t pp, int64_t num_chunks, int64_t num_micro_batches);

/// "send_activation"
std::string_view name_of(ActionKind kind);
/// "forward chunk 0 micro-batch 3", for messages and traces.
std::string describe(const Action& action);

}  // namespace moesaic
