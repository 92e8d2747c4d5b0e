#pragma once
// cuDNN's fused attention, prepared once per shape. Only attention_cudnn_cuda.cpp sees cuDNN's headers.
// A thread serves one GPU: what is prepared belongs to the thread and to the GPU it had chosen by then.
#include <compare>
#include <cstdint>
#include <optional>

namespace moesaic::ops::attention {

/// One launch: causal, bf16, over `sequences` whole sequences and `groups` neighbouring key/value heads with their query
/// heads, inside tensors of the full row widths (H + 2 G) A and H A.
struct CudnnLaunch {
  int64_t sequences, groups;
  int64_t S, H, G, A;
  bool backward, deterministic;
  auto operator<=>(const CudnnLaunch&) const = default;
};

/// Where the launch's first sequence and first heads lie; aligned to 16 bytes. d_*: backward only.
struct CudnnTensors {
  const void *q, *k, *v;
  void *o, *lse;  // lse [sequences, heads of the launch, S] f32, without gaps
  const void* d_o = nullptr;
  void *d_q = nullptr, *d_k = nullptr, *d_v = nullptr;
};

/// Prepares the launch, or finds it prepared, and returns the bytes of its workspace; nothing when cuDNN has no kernel for
/// it (the log says why, once). Throws DeviceError with cuDNN's words when cuDNN fails. The first call of a shape takes
/// up to seconds, so ops call this when a program is recorded.
std::optional<int64_t> prepare_cudnn(const CudnnLaunch& launch);

/// Enqueues a launch that cuDNN has a kernel for on `stream` (cudaStream_t). workspace: aligned to 256 bytes, the launch's
/// own until it is over.
void run_cudnn(const CudnnLaunch& launch, void* stream, const CudnnTensors& tensors, void* workspace);

}  // namespace moesaic::ops::attention
