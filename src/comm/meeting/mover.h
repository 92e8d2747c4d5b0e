#pragma once
// How a rank moves data between its memory and that of the ranks it meets (meeting_place.h), and how it orders that against the
// others' work. On the CPU everything happens in the call; on a GPU it is enqueued on a stream, copies run on copy engines over
// plain peer pointers, and order comes from events. One per communicator, used by its rank's thread alone.
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "comm/communicator.h"

namespace moesaic {

/// A point in a rank's work, for the others to wait for: what it means only movers of one kind know. 0: nothing to wait for.
using Mark = uint64_t;

/// Where memory of a rank lies, told so that others can reach it: ranks of one process by the pointer alone.
struct Address {
  const std::byte* base = nullptr;  // as its owner sees it: of the allocation, or the memory itself
  int64_t offset = 0;
  std::array<std::byte, 64> handle{};  // of the allocation, for other processes
};

class Mover {
 public:
  virtual ~Mover() = default;

  /// How the others reach `memory` of this rank (may be null).
  virtual Address publish(const void* memory) { return {static_cast<const std::byte*>(memory), 0, {}}; }
  /// Memory that member `member` of the group has published, as this rank reads it.
  virtual const std::byte* reach(size_t, const Address& address) { return address.base + address.offset; }
  /// See Communicator::forget_memory.
  virtual void forget_memory() {}

  /// A mark behind everything enqueued on `stream` so far. Valid until 60 more collectives of this communicator have been
  /// marked.
  virtual Mark mark(void* stream) = 0;
  /// What is enqueued on `stream` from now on comes after a mark of member `member`.
  virtual void wait(void* stream, size_t member, Mark mark) = 0;

  /// A stream that goes on from where `stream` is: what is enqueued on it until join() may run beside what is enqueued on
  /// `stream`. Not nested.
  virtual void* fork(void* stream) = 0;
  virtual void join(void* stream) = 0;

  virtual void copy(void* stream, void* to, const void* from, int64_t bytes) = 0;
  /// From rank `from_rank`'s send buffer to `to_rank`'s receive buffer.
  virtual void copy_blocks(void* stream, std::byte* to, const std::byte* from, const BlockCopy& blocks,
                           size_t to_rank, size_t from_rank) = 0;
  /// Rows of one rank's send buffer, in its order of destinations.
  struct Rows {
    const std::byte* data;
    const int32_t* offsets;  // its send_offsets
  };
  /// The rows that `sources` send to rank `me` (Communicator::all_to_all_rows).
  virtual void copy_rows(void* stream, std::byte* to, const int32_t* recv_offsets,
                         const std::vector<Rows>& sources, size_t me, int64_t recv_rows,
                         int64_t row_bytes) = 0;
  /// out[i] = sum over parts, in order, of their [first + i]; f32, bf16 or i32. out may be parts[k] + first.
  virtual void sum(void* stream, void* out, const std::vector<const std::byte*>& parts, int64_t first,
                   int64_t count, DType type) = 0;
};

std::unique_ptr<Mover> make_cpu_mover();
/// For ranks on GPUs of this process. ConfigError in a build without CUDA.
std::unique_ptr<Mover> make_cuda_mover();

}  // namespace moesaic
