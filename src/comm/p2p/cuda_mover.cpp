#include "comm/p2p/cuda_mover.h"

#include "base/check.h"
#include "comm/p2p/pull_kernels.h"
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

Side& side() {
  thread_local Side made;
  return made;
}

cudaStream_t native(void* stream) {
  return static_cast<cudaStream_t>(stream);
}

}  // namespace

CudaMover::~CudaMover() {
  for (cudaEvent_t event : marks_)
    if (event) cudaEventDestroy(event);
}

Mark CudaMover::mark(void* stream) {
  cudaEvent_t& event = marks_[next_++ % kMarks];
  if (!event) cuda_check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event");
  cuda_check(cudaEventRecord(event, native(stream)), "recording an event");
  return reinterpret_cast<Mark>(event);
}

void CudaMover::wait(void* stream, size_t, Mark mark) {
  cuda_check(cudaStreamWaitEvent(native(stream), reinterpret_cast<cudaEvent_t>(mark), 0),
             "waiting for a peer");
}

void* CudaMover::fork(void* stream) {
  cuda_check(cudaEventRecord(side().begin, native(stream)), "recording an event");
  cuda_check(cudaStreamWaitEvent(side().stream, side().begin, 0), "waiting for an event");
  return side().stream;
}

void CudaMover::join(void* stream) {
  cuda_check(cudaEventRecord(side().end, side().stream), "recording an event");
  cuda_check(cudaStreamWaitEvent(native(stream), side().end, 0), "waiting for an event");
}

void CudaMover::copy(void* stream, void* to, const void* from, int64_t bytes) {
  if (bytes == 0 || to == from) return;
  cuda_check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, native(stream)),
             "copying from a peer");
}

void CudaMover::copy_blocks(void* stream, std::byte* to, const std::byte* from, const BlockCopy& blocks,
                            size_t to_rank, size_t from_rank) {
  for (int64_t o = 0; o < blocks.outer; ++o)
    cuda_check(cudaMemcpy2DAsync(to + blocks.recv_offset[from_rank] + o * blocks.recv_outer,
                                 static_cast<size_t>(blocks.recv_pitch),
                                 from + blocks.send_offset[to_rank] + o * blocks.send_outer,
                                 static_cast<size_t>(blocks.send_pitch), static_cast<size_t>(blocks.width),
                                 static_cast<size_t>(blocks.rows), cudaMemcpyDefault, native(stream)),
               "copying blocks from a peer");
}

void CudaMover::copy_rows(void* stream, std::byte* to, const int32_t* recv_offsets,
                          const std::vector<Rows>& sources, size_t me, int64_t recv_rows, int64_t row_bytes) {
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

void CudaMover::sum(void* stream, void* out, const std::vector<const std::byte*>& parts, int64_t first,
                    int64_t count, DType type) {
  MOESAIC_CHECK(parts.size() <= kMaxSources || type != DType::bf16, "{} parts in BF16, at most {}",
                parts.size(), kMaxSources);
  for (size_t p = 0; p < parts.size();) {
    PullSum pull{.out = out, .num_sources = 0, .count = count};
    if (p > 0) pull.parts[pull.num_sources++] = static_cast<const std::byte*>(out);  // the sum so far
    while (pull.num_sources < kMaxSources && p < parts.size())
      pull.parts[pull.num_sources++] = parts[p++] + first * size_of(type);
    pull_sum(native(stream), pull, type);
  }
  cuda_check(cudaPeekAtLastError(), "summing parts");
}

std::unique_ptr<Mover> make_cuda_mover() {
  return std::make_unique<CudaMover>();
}

}  // namespace moesaic
