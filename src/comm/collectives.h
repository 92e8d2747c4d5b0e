#pragma once
// Collectives as ops of a program: each records one node that takes its sequence number when it is replayed.
// Handles name whole tensors; sizes follow from their shapes. The communicator must outlive the program.
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "device/program.h"

namespace moesaic::comm {

/// recv = the ranks' send in rank order; bytes of recv = size * bytes of send.
void all_gather(Program& g, Stream stream, Communicator& group, Handle send, Handle recv,
                const std::string& what);
/// In place: this rank's part of `whole` is already there.
void all_gather_in_place(Program& g, Stream stream, Communicator& group, Handle whole,
                         const std::string& what);
/// recv [count] = sum of everybody's part for me of send [size * count].
void reduce_scatter(Program& g, Stream stream, Communicator& group, Handle send, Handle recv,
                    const std::string& what);
/// In place: this rank's part of `whole` becomes the sum of everybody's; the other parts keep this rank's own values.
void reduce_scatter_in_place(Program& g, Stream stream, Communicator& group, Handle whole,
                             const std::string& what);
/// The moving half of a reduce_scatter: recv [(size - 1) * count] = the other ranks' part for me of their send
/// [size * count], in rank order. This rank's own part is not read, and may be written meanwhile. ops::sum_parts is the other
/// half.
void exchange_parts(Program& g, Stream stream, Communicator& group, Handle send, Handle recv,
                    const std::string& what);
/// recv = sum of everybody's send.
void all_reduce(Program& g, Stream stream, Communicator& group, Handle send, Handle recv,
                const std::string& what);
/// All-to-all of strided pieces (BlockCopy in communicator.h).
void all_to_all_blocks(Program& g, Stream stream, Communicator& group, Handle send, Handle recv,
                       std::vector<BlockCopy> copies, const std::string& what);
/// Rows, uneven: send [*, W], send_offsets [size + 1] i32, recv [rows, W], recv_offsets [size + 1] i32.
/// `expected_rows`: rows that this rank is expected to receive, for the cost.
void all_to_all_rows(Program& g, Stream stream, Communicator& group, Handle send, Handle send_offsets,
                     Handle recv, Handle recv_offsets, double expected_rows, const std::string& what);

}  // namespace moesaic::comm
