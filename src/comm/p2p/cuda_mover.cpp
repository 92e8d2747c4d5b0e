#include <array>

#include "base/check.h"
#include "comm/p2p/pull_kernels.h"
#include "comm/threads/mover.h"
#include "device/cuda/cuda_check.h"

namespace moesaic {
namespace {

/// A second stream for the rank of this thread.
struct Side {
  Side() {
    cuda_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
    for (cudaEvent_t* event : {&begin, &end})
      cuda_check(cudaEventCreateWithFlags(event, cudaEventDisableTiming), "making an event");
  }
  ~Side() {
    for (cudaEvent_t event : {begin, end}) cudaEventDestroy(event);
    cudaStreamDestroy(stream);
  }
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;
  cudaStream_t stream = nullptr;
  cudaEvent_t begin = nullptr, end = nullptr;
};

/// Plain copies run on copy engines and take no multiprocessor from the ops beside them; sums and uneven rows are kernels
/// that read the peers' memory.
class CudaMover : public Mover {
 public:
  CudaMover() = default;
  ~CudaMover() override {
    for (cudaEvent_t event : marks_)
      if (event) cudaEventDestroy(event);
  }
  CudaMover(const CudaMover&) = delete;
  CudaMover& operator=(const CudaMover&) = delete;

  void* mark(void* stream) override {
    cudaEvent_t& event = marks_[next_++ % marks_.size()];
    if (!event) cuda_check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event");
    cuda_check(cudaEventRecord(event, native(stream)), "recording an event");
    return event;
  }
  void wait(void* stream, void* mark) override {
    cuda_check(cudaStreamWaitEvent(native(stream), static_cast<cudaEvent_t>(mark), 0), "waiting for a peer");
  }

  void* fork(void* stream) override {
    cuda_check(cudaEventRecord(side().begin, native(stream)), "recording an event");
    cuda_check(cudaStreamWaitEvent(side().stream, side().begin, 0), "waiting for an event");
    return side().stream;
  }
  void join(void* stream) override {
    cuda_check(cudaEventRecord(side().end, side().stream), "recording an event");
    cuda_check(cudaStreamWaitEvent(native(stream), side().end, 0), "waiting for an event");
  }

  void copy(void* stream, void* to, const void* from, int64_t bytes) override {
    if (bytes == 0 || to == from) return;
    cuda_check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, native(stream)),
               "copying from a peer");
  }
  void copy_blocks(void* stream, std::byte* to, const std::byte* from, const BlockCopy& c, size_t to_rank,
                   size_t from_rank) override {
    for (int64_t o = 0; o < c.outer; ++o)
      cuda_check(cudaMemcpy2DAsync(to + c.recv_offset[from_rank] + o * c.recv_outer,
                                   static_cast<size_t>(c.recv_pitch),
                                   from + c.send_offset[to_rank] + o * c.send_outer,
                                   static_cast<size_t>(c.send_pitch), static_cast<size_t>(c.width),
                                   static_cast<size_t>(c.rows), cudaMemcpyDefault, native(stream)),
                 "copying blocks from a peer");
  }
  void copy_rows(void* stream, std::byte* to, const int32_t* recv_offsets, const std::vector<Rows>& sources,
                 size_t me, int64_t recv_rows, int64_t row_bytes) override {
    PullRows pull{.to = to,
                  .recv_offsets = recv_offsets,
                  .num_sources = static_cast<int>(sources.size()),
                  .me = static_cast<int>(me),
                  .recv_rows = recv_rows,
                  .row_bytes = row_bytes};
    MOESAIC_CHECK(sources.size() <= kMaxSources, "{} ranks in one process, at most {}", sources.size(),
                  kMaxSources);
    for (size_t p = 0; p < sources.size(); ++p)
      pull.data[p] = sources[p].data, pull.offsets[p] = sources[p].offsets;
    pull_rows(native(stream), pull);
    cuda_check(cudaPeekAtLastError(), "pulling rows");
  }
  void sum(void* stream, void* out, const std::vector<const std::byte*>& parts, int64_t first, int64_t count,
           DType type) override {
    PullSum pull{.out = out, .num_sources = static_cast<int>(parts.size()), .count = count};
    MOESAIC_CHECK(parts.size() <= kMaxSources, "{} ranks in one process, at most {}", parts.size(),
                  kMaxSources);
    for (size_t p = 0; p < parts.size(); ++p) pull.parts[p] = parts[p] + first * size_of(type);
    pull_sum(native(stream), pull, type);
    cuda_check(cudaPeekAtLastError(), "summing parts");
  }

 private:
  static cudaStream_t native(void* stream) { return static_cast<cudaStream_t>(stream); }
  static Side& side() {
    thread_local Side made;
    return made;
  }

  std::array<cudaEvent_t, 128>
      marks_{};  // two of each of the last 64 collectives (ThreadHub::kCells), in turns
  uint64_t next_ = 0;
};

}  // namespace

std::unique_ptr<Mover> make_cuda_mover() {
  return std::make_unique<CudaMover>();
}

}  // namespace moesaic
