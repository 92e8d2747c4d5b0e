#pragma once
// Our own attention on a GPU, for what cuDNN does not do: packed documents, FP32, unusual shapes. Blocked as on the CPU, no
// S x S matrix. The backward makes d_q, and d_k with d_v, in two passes that each own what they write: no atomics.
#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace moesaic::ops::attention {

struct Problem {
  int64_t B;
  int S, H, G, A;
  const int32_t* doc_start;  // [B, S], or null
  cudaStream_t stream;
  constexpr int64_t row() const { return int64_t{H + 2 * G} * A; }
};
template <class T>
struct ForwardTensors {
  const T* qkv;
  T* o;
  float* lse;
};
template <class T>  // older compilers do not deduce an aggregate's T
ForwardTensors(const T*, T*, float*)->ForwardTensors<T>;
template <class T>
struct BackwardTensors {
  const T *d_o, *qkv, *o;
  const float* lse;
  T* d_qkv;
  float* delta;  // [B, H, S], working memory
};
template <class T>
BackwardTensors(const T*, const T*, const T*, const float*, T*, float*) -> BackwardTensors<T>;

/// On tensor cores. Weights and their gradients are rounded to BF16 before they are multiplied; everything else is FP32.
inline constexpr int kWidestTile = 256;  // the widest head
void tile_forward(const Problem& p, const ForwardTensors<__nv_bfloat16>& t);
void tile_backward(const Problem& p, const BackwardTensors<__nv_bfloat16>& t);

/// In FP32 throughout, and slow. T: float or __nv_bfloat16.
inline constexpr int kWidestPlain = 512;
template <class T>
void plain_forward(const Problem& p, const ForwardTensors<T>& t);
template <class T>
void plain_backward(const Problem& p, const BackwardTensors<T>& t);

/// delta [B, H, S] = sums over a head's width of d_o * o, which both backwards begin with.
template <class T>
void make_delta(const Problem& p, const BackwardTensors<T>& t);

}  // namespace moesaic::ops::attention
