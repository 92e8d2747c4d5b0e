#pragma once
// Moves data between GPUs whose memory this process can address. Plain copies run on copy engines and take no multiprocessor from
// the ops beside them; sums and uneven rows are kernels that read the peers' memory (pull_kernels.h).
#include <cuda_runtime_api.h>

#include <array>

#include "comm/meeting/mover.h"

namespace moesaic {

/// Between GPUs of one process: a mark is the address of an event.
class CudaMover : public Mover {
 public:
  CudaMover() = default;
  ~CudaMover() override;
  CudaMover(const CudaMover&) = delete;
  CudaMover& operator=(const CudaMover&) = delete;

  Mark mark(void* stream) override;
  void wait(void* stream, size_t member, Mark mark) override;
  void* fork(void* stream) override;
  void join(void* stream) override;
  void copy(void* stream, void* to, const void* from, int64_t bytes) override;
  void copy_blocks(void* stream, std::byte* to, const std::byte* from, const BlockCopy& blocks,
                   size_t to_rank, size_t from_rank) override;
  void copy_rows(void* stream, std::byte* to, const int32_t* recv_offsets, const std::vector<Rows>& sources,
                 size_t me, int64_t recv_rows, int64_t row_bytes) override;
  void sum(void* stream, void* out, const std::vector<const std::byte*>& parts, int64_t first, int64_t count,
           DType type) override;

 protected:
  /// Two of each of the last 64 collectives (kCells), in turns.
  static constexpr size_t kMarks = 128;
  /// Events of this mover, made when first needed.
  std::array<cudaEvent_t, kMarks> marks_{};
  uint64_t next_ = 0;
};

}  // namespace moesaic
