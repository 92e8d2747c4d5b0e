#pragma once
// Collectives of one group of ranks. A collective is posted and completed: posting offers this rank's buffers
// and returns at once, the Pending it returns is asked until it answers true. After that the send buffer may
// be written again and the receive buffer is filled. Nothing here blocks the caller, so a rank can run other
// streams meanwhile.
//
// Matching: each collective carries a sequence number of its communicator, taken (take_sequence) when it is
// enqueued; all ranks enqueue the same collectives in the same order, whatever order they run in. A different
// kind or size under the same number ends the job with a message. Numerics: sums are FP32 (BF16 is widened,
// summed, rounded once) in rank order 0, 1, ..., so repeats are bit-equal. Buffers: receive and send do not
// overlap, except that all_gather may be in place (send is recv + rank * bytes). Errors: a Pending throws
// CommError when the group was aborted or a rank did not come within the time limit.
#include <cstdint>
#include <memory>
#include <vector>

#include "base/dtype.h"
#include "device/program.h"

namespace moesaic {

/// Which part of an all-to-all goes where, for one kind of tensor in the buffers (q, k or v of a head
/// exchange): from peer p to this rank r, `outer` x `rows` pieces of `width` bytes. Piece (o, i) is read at
///   send_offset[r] + o * send_outer + i * send_pitch   of p's send buffer, and written at
///   recv_offset[p] + o * recv_outer + i * recv_pitch   of r's receive buffer. All in bytes, the same on
///   every rank.
struct BlockCopy {
  int64_t outer = 1, rows = 1, width = 0;
  std::vector<int64_t> send_offset, recv_offset;  // [size of the group]
  int64_t send_outer = 0, send_pitch = 0, recv_outer = 0, recv_pitch = 0;
};

/// Which collective of its communicator a call is, and the native stream that it is enqueued on (null on the CPU).
struct Call {
  uint64_t sequence = 0;
  void* stream = nullptr;
  Call(uint64_t number, void* native_stream = nullptr)
      : sequence(number), stream(native_stream) {}  // NOLINT: a number will do
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int64_t rank() const = 0;
  virtual int64_t size() const = 0;
  /// The number of the next collective. Called once per collective, in the order of enqueueing.
  virtual uint64_t take_sequence() = 0;
  /// The same for messages from rank `source` to rank `destination` of the group, at either end.
  virtual uint64_t take_pair_sequence(int64_t source, int64_t destination) = 0;
  /// The ranks' buffers are about to be given back: what was kept about where the others' lie is let go. Called by all ranks
  /// with nothing under way; memory that another process could reach is free once all have.
  virtual void forget_memory() {}

  /// recv [size * bytes] = the ranks' send [bytes], in rank order.
  virtual Pending all_gather(const Call& call, const void* send, void* recv, int64_t bytes) = 0;
  /// recv [count] = sum over ranks of their send[rank * count ..]; send [size * count] of `type` (f32, bf16).
  virtual Pending reduce_scatter(const Call& call, const void* send, void* recv, int64_t count,
                                 DType type) = 0;
  /// recv [count] = sum over ranks of send [count]; f32, bf16 or i32.
  virtual Pending all_reduce(const Call& call, const void* send, void* recv, int64_t count, DType type) = 0;
  /// recv [size * bytes]: part p = part `rank` of p's send [size * bytes].
  virtual Pending all_to_all(const Call& call, const void* send, void* recv, int64_t bytes) = 0;
  /// What a reduce_scatter sums, moved and not summed: recv [(size - 1) * bytes] = part `rank` of the other ranks' send
  /// [size * bytes], in rank order without this rank's own, which is not read: it may be written meanwhile. On a GPU copy
  /// engines do it, beside ops that fill the GPU.
  virtual Pending exchange_parts(const Call& call, const void* send, void* recv, int64_t bytes) = 0;
  /// All-to-all of strided pieces.
  virtual Pending all_to_all_blocks(const Call& call, const void* send, void* recv,
                                    const std::vector<BlockCopy>& copies) = 0;
  /// All-to-all of rows, uneven: rows send_offsets[p] .. send_offsets[p + 1] of send go to rank p; rows
  /// recv_offsets[p] .. of recv come from it. Offsets [size + 1] i32 lie in device memory and are read when
  /// it runs. Rows past capacity (`recv_rows`) are left out: whoever made the offsets has noted the overflow.
  virtual Pending all_to_all_rows(const Call& call, const void* send, const int32_t* send_offsets, void* recv,
                                  const int32_t* recv_offsets, int64_t recv_rows, int64_t row_bytes) = 0;
  /// recv [bytes] on every rank = root's send; send may be null elsewhere. On the root recv may be send.
  virtual Pending broadcast(const Call& call, const void* send, void* recv, int64_t bytes, int64_t root) = 0;
  virtual Pending barrier(const Call& call) = 0;
  /// Point to point, inside the group; sequence from take_pair_sequence.
  virtual Pending send(const Call& call, const void* data, int64_t bytes, int64_t destination) = 0;
  virtual Pending receive(const Call& call, void* data, int64_t bytes, int64_t source) = 0;
};

/// Makes no exchange; for devices without data. Every collective is complete at once.
std::unique_ptr<Communicator> make_null_communicator(int64_t rank, int64_t size);

}  // namespace moesaic
