#include <cfloat>

#include "ops/bias/row_sums_cuda.h"
#include "ops/cuda_op.cuh"
#include "ops/head_loss/head_loss_bodies.h"
#include "ops/matmul/gemm_cuda.h"

namespace moesaic::ops {
namespace {

constexpr int kSumThreads = 1024;

/// The tokens of a chunk.
template <class T>
struct Tokens {
  const float *logits, *scale;  // scale: null without gradients
  const int32_t* targets;
  float* losses;
  T* gradients;  // [tokens, V]; where logits lie, when they are FP32
  int64_t num_logits;
  const T* bias;  // [V], null without
};

/// Sum of e^(x - top), and the largest x so far.
struct ExpSum {
  float top = -FLT_MAX, sum = 0;  // not minus infinity, which minus itself is NaN

  __device__ void raise(float to) {
    if (to <= top) return;
    sum *= expf(top - to);
    top = to;
  }
  __device__ void add(ExpSum other) {
    raise(other.top);
    sum += other.sum * expf(other.top - top);
  }
};

/// kPack logits of a row from v on, with what the bias adds to them.
template <bool kBiased, int kPack, class T>
__device__ Pack<float, kPack> load_logits(const float* logits, const T* bias, int64_t v) {
  auto pack = load_pack<float, kPack>(logits + v);
  if constexpr (kBiased) {
    const auto more = load_pack<T, kPack>(bias + v);
#pragma unroll
    for (int j = 0; j < kPack; ++j) pack.values[j] += more[j];
  }
  return pack;
}

/// Of a whole block, the same on every thread. Every thread calls it, once.
template <int kThreads>
__device__ ExpSum block_exp_sum(ExpSum mine) {
  __shared__ ExpSum warps[kThreads / 32];
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) {
    ExpSum other;
    other.top = __shfl_xor_sync(0xffffffffu, mine.top, lane);
    other.sum = __shfl_xor_sync(0xffffffffu, mine.sum, lane);
    mine.add(other);
  }
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = mine;
  __syncthreads();
  ExpSum all;
  for (int w = 0; w < kThreads / 32; ++w) all.add(warps[w]);
  return all;
}

/// A block per token: its loss, and with a scale the gradient of its logits.
template <bool kBiased, int kThreads, int kPack, class T>
__global__ void __launch_bounds__(kThreads) token_loss_kernel(const Tokens<T> a) {
  constexpr int kDepth = 2;                // packs that a thread loads before it uses them
  constexpr int kStep = kThreads * kPack;  // logits of a block's packs
  const int64_t row = blockIdx.x, V = a.num_logits;
  const float* logits = a.logits + row * V;
  T* gradient = a.gradients + row * V;
  const int64_t begin = static_cast<int64_t>(threadIdx.x) * kPack;
  const int32_t target = a.targets[row];
  if (target < 0) {
    if (threadIdx.x == 0) a.losses[row] = 0;
    const float zeros[kPack] = {};
    for (int64_t v = begin; a.scale != nullptr && v < V; v += kStep) store_pack(gradient + v, zeros);
    return;
  }

  ExpSum sum;
  for (int64_t v = begin; v < V; v += kDepth * kStep) {
    float x[kDepth * kPack];
#pragma unroll
    for (int i = 0; i < kDepth; ++i) {
      Pack<float, kPack> pack;
      const bool inside = v + i * kStep < V;
      if (inside) pack = load_logits<kBiased, kPack>(logits, a.bias, v + i * kStep);
#pragma unroll
      for (int j = 0; j < kPack; ++j) x[i * kPack + j] = inside ? pack[j] : -INFINITY;
    }
    float top = x[0];
#pragma unroll
    for (int i = 1; i < kDepth * kPack; ++i) top = fmaxf(top, x[i]);
    sum.raise(top);
#pragma unroll
    for (int i = 0; i < kDepth * kPack; ++i) sum.sum += expf(x[i] - sum.top);
  }
  // Before gradients may overwrite it.
  const float target_logit = load_logits<kBiased, 1>(logits, a.bias, target)[0];
  sum = block_exp_sum<kThreads>(sum);
  if (threadIdx.x == 0) a.losses[row] = logf(sum.sum) + sum.top - target_logit;
  if (a.scale == nullptr) return;

  // From the end back: what was read last is the most likely to be in the cache still.
  const float scale = *a.scale, factor = scale / sum.sum;
  for (int64_t first = (V - 1) / kStep * kStep; first >= 0; first -= kStep) {
    const int64_t v = first + begin;
    if (v >= V) continue;
    const auto pack = load_logits<kBiased, kPack>(logits, a.bias, v);
    float d[kPack];
#pragma unroll
    for (int j = 0; j < kPack; ++j) {
      d[j] = expf(pack[j] - sum.top) * factor;
      if (v + j == target) d[j] -= scale;
    }
    store_pack(gradient + v, d);
  }
}

/// One block: loss += sum of the losses, counted += number of targets that count.
__global__ void __launch_bounds__(kSumThreads)
    sum_losses_kernel(int64_t num_tokens, const float* losses, const int32_t* targets, float* loss,
                      int32_t* counted) {
  __shared__ double sums[kSumThreads];
  __shared__ int32_t counts[kSumThreads];
  const int thread = static_cast<int>(threadIdx.x);
  double sum = 0;
  int32_t count = 0;
  for (int64_t t = thread; t < num_tokens; t += kSumThreads) {
    sum += static_cast<double>(losses[t]);
    count += targets[t] >= 0;
  }
  sums[thread] = sum;
  counts[thread] = count;
  for (int half = kSumThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (thread >= half) continue;
    sums[thread] += sums[thread + half];
    counts[thread] += counts[thread + half];
  }
  if (thread != 0) return;
  *loss += static_cast<float>(sums[0]);
  *counted += counts[0];
}

template <bool kBiased, class T>
void token_losses(cudaStream_t stream, int64_t num_tokens, const Tokens<T>& a) {
  const auto blocks = static_cast<unsigned>(num_tokens);
  const bool packed = packs(a.logits, a.num_logits, 4, 4) && packs(a.gradients, a.num_logits, 4, sizeof(T)) &&
                      packs(a.bias, a.num_logits, 4, sizeof(T));
  const bool small = a.num_logits <= 4096;
  if (packed && small)
    token_loss_kernel<kBiased, 128, 4><<<blocks, 128, 0, stream>>>(a);
  else if (packed)
    token_loss_kernel<kBiased, 1024, 4><<<blocks, 1024, 0, stream>>>(a);
  else if (small)
    token_loss_kernel<kBiased, 128, 1><<<blocks, 128, 0, stream>>>(a);
  else
    token_loss_kernel<kBiased, 1024, 1><<<blocks, 1024, 0, stream>>>(a);
}

template <class T>
void run(const OpContext& c, const HeadLoss& args) {
  const DType type = c.dtype(args.x);
  const int64_t num_tokens = c.shape(args.x).rows(), width = c.shape(args.x)[-1];
  const int64_t num_logits = c.shape(args.w)[0], chunk = c.shape(args.logits)[0];
  const bool with_gradients = static_cast<bool>(args.dx),
             bf16_gradient = with_gradients && type == DType::bf16;
  const HeadLossScratch parts = head_loss_scratch(c.shape(args.logits), num_tokens, bf16_gradient,
                                                  static_cast<bool>(args.d_bias), !args.token_loss);
  std::byte* scratch = c.out_bytes(args.scratch);
  const auto *x = c.in<T>(args.x), *w = c.in<T>(args.w), *bias = in_or_null<T>(c, args.bias);
  float* logits = c.out<float>(args.logits);
  const auto* scale = in_or_null<float>(c, args.scale);
  T *dx = out_or_null<T>(c, args.dx), *gradients = reinterpret_cast<T*>(logits);
  if (bf16_gradient) gradients = reinterpret_cast<T*>(scratch + parts.gradient);
  float *dw = args.accumulate ? inout_or_null<float>(c, args.dw) : out_or_null<float>(c, args.dw),
        *d_bias = args.accumulate ? inout_or_null<float>(c, args.d_bias) : out_or_null<float>(c, args.d_bias),
        *losses = out_or_null<float>(c, args.token_loss);
  if (losses == nullptr) losses = reinterpret_cast<float*>(scratch + parts.losses);
  const int32_t* targets = c.in<int32_t>(args.targets);
  if (d_bias != nullptr && !args.accumulate)
    cudaMemsetAsync(d_bias, 0, static_cast<size_t>(4 * num_logits), cuda_stream(c));

  for (int64_t first = 0; first < num_tokens; first += chunk) {
    const int64_t rows = std::min(chunk, num_tokens - first);
    gemm_cuda(c, rows, num_logits, width, {x + first * width, type, false}, {w, type, true}, false, logits,
              DType::f32, scratch, kGemmWorkspace);
    const Tokens<CudaType<T>> tokens{.logits = logits,
                                     .scale = scale,
                                     .targets = targets + first,
                                     .losses = losses + first,
                                     .gradients = cuda_pointer(gradients),
                                     .num_logits = num_logits,
                                     .bias = cuda_pointer(bias)};
    if (bias != nullptr)
      token_losses<true>(cuda_stream(c), rows, tokens);
    else
      token_losses<false>(cuda_stream(c), rows, tokens);
    if (!with_gradients) continue;
    if (d_bias != nullptr)
      row_sums_cuda(c, type, gradients, rows, num_logits, scratch + parts.bias_sums, d_bias);
    gemm_cuda(c, rows, width, num_logits, {gradients, type, false}, {w, type, false}, false,
              dx + first * width, type, scratch, kGemmWorkspace);
    gemm_cuda(c, num_logits, width, rows, {gradients, type, true}, {x + first * width, type, false},
              args.accumulate || first > 0, dw, DType::f32, scratch, kGemmWorkspace);
  }
  sum_losses_kernel<<<1, kSumThreads, 0, cuda_stream(c)>>>(
      num_tokens, losses, targets, c.inout<float>(args.loss), c.inout<int32_t>(args.counted));
}

}  // namespace

void head_loss_cuda(const OpContext& c, const HeadLoss& args) {
  with_float(c.dtype(args.x), [&](auto zero) { run<decltype(zero)>(c, args); });
}

}  // namespace moesaic::ops
