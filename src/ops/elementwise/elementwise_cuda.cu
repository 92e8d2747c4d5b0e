#include "ops/cuda_op.cuh"
#include "ops/elementwise/elementwise_bodies.h"

namespace moesaic::ops {
namespace {

constexpr int kThreads = 256;
constexpr int kPack = 4;  // 16 bytes of f32, 8 of bf16

/// y = a (+ b): the first num_packs * kPack elements in packs, the rest one by one.
template <bool kAdd, class A, class B, class Y>
__global__ void map_kernel(int64_t count, int64_t num_packs, const A* a, const B* b, Y* y) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = first; i < num_packs; i += stride) {
    const auto x = load_pack<A, kPack>(a + i * kPack);
    float values[kPack];
#pragma unroll
    for (int k = 0; k < kPack; ++k) values[k] = x[k];
    if constexpr (kAdd) {
      const auto z = load_pack<B, kPack>(b + i * kPack);
#pragma unroll
      for (int k = 0; k < kPack; ++k) values[k] += z[k];
    }
    store_pack(y + i * kPack, values);
  }
  for (int64_t i = num_packs * kPack + first; i < count; i += stride) {
    float value = to_float(a[i]);
    if constexpr (kAdd) value += to_float(b[i]);
    y[i] = from_float<Y>(value);
  }
}

template <bool kAdd, class A, class B, class Y>
void map(cudaStream_t stream, int64_t count, const A* a, const B* b, Y* y) {
  const bool aligned = packs(a, kPack, kPack, sizeof *a) && packs(y, kPack, kPack, sizeof *y) &&
                       (!kAdd || packs(b, kPack, kPack, sizeof *b));
  map_kernel<kAdd><<<num_blocks(ceil_div(count, kThreads * kPack)), kThreads, 0, stream>>>(
      count, aligned ? count / kPack : 0, a, b, y);
}

/// One row of packs of every part; the rest of fewer than a pack one by one.
template <class T, int kWidth>
__global__ void sum_parts_kernel(int64_t count, int parts, int rank, const T* own, const T* others,
                                 const T* add, T* y) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x * kWidth;
  for (int64_t i = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kWidth; i < count;
       i += stride) {
    float sum[kWidth];
    for (int p = 0; p < parts; ++p) {
      const T* part = p == rank ? own : others + (p < rank ? p : p - 1) * count;
      const auto x = load_pack<T, kWidth>(part + i);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) sum[k] = p == 0 ? x[k] : sum[k] + x[k];
    }
    if (add != nullptr) {
      const auto x = load_pack<T, kWidth>(add + i);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) sum[k] += x[k];
    }
    store_pack(y + i, sum);
  }
}

template <int kWidth, class T>
void sum_parts(cudaStream_t stream, int64_t count, int parts, int rank, const T* own, const T* others,
               const T* add, T* y) {
  sum_parts_kernel<T, kWidth><<<num_blocks(ceil_div(count, kThreads * kWidth)), kThreads, 0, stream>>>(
      count, parts, rank, own, others, add, y);
}

}  // namespace

void zero_cuda(const OpContext& c, const Zero& args) {
  cudaMemsetAsync(c.out_bytes(args.y), 0,
                  static_cast<size_t>(c.shape(args.y).numel() * size_of(c.dtype(args.y))), cuda_stream(c));
}

void copy_cuda(const OpContext& c, const Copy& args) {
  const int64_t count = c.shape(args.x).numel();
  if (c.dtype(args.x) == c.dtype(args.y)) {
    // By the copy engines; one end may be host memory.
    cudaMemcpyAsync(c.out_bytes(args.y), c.in_bytes(args.x),
                    static_cast<size_t>(count * size_of(c.dtype(args.x))), cudaMemcpyDefault, cuda_stream(c));
    return;
  }
  with_float(c.dtype(args.x), [&](auto x_zero) {
    with_float(c.dtype(args.y), [&](auto y_zero) {
      const auto* x = cuda_pointer(c.in<decltype(x_zero)>(args.x));
      map<false>(cuda_stream(c), count, x, x, cuda_pointer(c.out<decltype(y_zero)>(args.y)));
    });
  });
}

void add_cuda(const OpContext& c, const Add& args) {
  with_float(c.dtype(args.a), [&](auto a_zero) {
    with_float(c.dtype(args.b), [&](auto b_zero) {
      with_float(c.dtype(args.y), [&](auto y_zero) {
        map<true>(cuda_stream(c), c.shape(args.y).numel(), cuda_pointer(c.in<decltype(a_zero)>(args.a)),
                  cuda_pointer(c.in<decltype(b_zero)>(args.b)),
                  cuda_pointer(c.out<decltype(y_zero)>(args.y)));
      });
    });
  });
}

void sum_parts_cuda(const OpContext& c, const SumParts& args) {
  const int64_t count = c.shape(args.y).numel();
  const auto parts = static_cast<int>(c.shape(args.others).numel() / count + 1);
  const auto rank = static_cast<int>(args.rank);
  with_float(c.dtype(args.y), [&](auto zero) {
    using T = decltype(zero);
    constexpr int kWidth = 16 / sizeof(T);
    const auto *own = cuda_pointer(c.in<T>(args.own)), *others = cuda_pointer(c.in<T>(args.others)),
               *add = cuda_pointer(in_or_null<T>(c, args.add));
    auto* y = cuda_pointer(c.out<T>(args.y));
    const bool aligned = packs(own, count, kWidth, sizeof(T)) && packs(others, count, kWidth, sizeof(T)) &&
                         packs(add, count, kWidth, sizeof(T)) && packs(y, count, kWidth, sizeof(T));
    if (aligned)
      sum_parts<kWidth>(cuda_stream(c), count, parts, rank, own, others, add, y);
    else
      sum_parts<1>(cuda_stream(c), count, parts, rank, own, others, add, y);
  });
}

}  // namespace moesaic::ops
