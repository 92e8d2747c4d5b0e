// What runs in front of a grouped product: the table of groups, made from offsets that only the device knows, and rows
// gathered through a row map.
#include "ops/cuda_op.cuh"
#include "ops/grouped_matmul/grouped_gemm_cuda.h"

namespace moesaic::ops {
namespace {

constexpr int kTableThreads = 128;
constexpr int kGatherThreads = 128;
constexpr int kLoads = 4;  // loads of a thread in flight

struct Range {
  int64_t begin, count;
};
/// Never beyond the tensors, whatever rows holds.
__device__ Range rows_of(GroupRows rows, int64_t group, int64_t num_rows) {
  const int64_t begin = min(max(static_cast<int64_t>(rows.begins[group]), int64_t{0}), num_rows);
  const int64_t end = min(static_cast<int64_t>(rows.ends[group]), num_rows);
  return {begin, max(end - begin, int64_t{0})};
}

__device__ void set_extents(const GroupTable& table, int64_t group, int64_t m, int64_t n, int64_t k) {
  table.extents[3 * group] = static_cast<int32_t>(m);
  table.extents[3 * group + 1] = static_cast<int32_t>(n);
  table.extents[3 * group + 2] = static_cast<int32_t>(k);
}

__global__ void table_kernel(GroupTable table, GroupedShape s, GroupRows groups, bool trans_w,
                             const __nv_bfloat16* x, const __nv_bfloat16* w, __nv_bfloat16* y) {
  const int64_t in = trans_w ? s.k : s.n, out = trans_w ? s.n : s.k;
  for (int64_t group = threadIdx.x; group < table.groups; group += kTableThreads) {
    const Range rows = rows_of(groups, group, s.num_rows);
    set_extents(table, group, rows.count, out, in);
    table.a[group] = x + rows.begin * in;
    table.b[group] = w + group * s.n * s.k;
    table.out[group] = y + rows.begin * out;
    table.a_stride[group] = in;
    table.b_stride[group] = s.k;
    table.out_stride[group] = out;
  }
}

__global__ void weight_grad_table_kernel(GroupTable table, GroupedShape s, const int32_t* offsets,
                                         const __nv_bfloat16* dy, const __nv_bfloat16* x, float* dw) {
  for (int64_t group = threadIdx.x; group < table.groups; group += kTableThreads) {
    const Range rows = rows_of({offsets, offsets + 1}, group, s.num_rows);
    set_extents(table, group, rows.count == 0 ? 0 : s.n, s.k, rows.count);
    table.a[group] = dy + rows.begin * s.n;
    table.b[group] = x + rows.begin * s.k;
    table.out[group] = dw + group * s.n * s.k;
    table.a_stride[group] = s.n;
    table.b_stride[group] = s.k;
    table.out_stride[group] = s.k;
  }
}

/// Blocks of x walk one group each (y).
__global__ void zero_empty_kernel(const int32_t* offsets, int64_t num_rows, int64_t count, float* dw) {
  if (rows_of({offsets, offsets + 1}, blockIdx.y, num_rows).count > 0) return;
  dw += blockIdx.y * count;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kGatherThreads + threadIdx.x; i < count;
       i += static_cast<int64_t>(gridDim.x) * kGatherThreads)
    dw[i] = 0;
}

/// A block per row at a time, strewn over all of them, however long the groups are.
template <class Pack>
__global__ void __launch_bounds__(kGatherThreads)
    gather_kernel(const Pack* x, const int32_t* map, GroupRows rows, int64_t num_groups, int64_t num_rows,
                  int64_t packs, Pack* to) {
  int64_t group = 0;
  for (int64_t row = blockIdx.x; row < num_rows; row += gridDim.x) {
    while (group < num_groups && row >= rows.ends[group]) ++group;
    if (group == num_groups) return;
    if (row < rows.begins[group]) continue;
    const Pack* from = x + map[row] * packs;
    Pack* into = to + row * packs;
    for (int64_t first = threadIdx.x; first < packs; first += kLoads * kGatherThreads) {
      Pack values[kLoads];
#pragma unroll
      for (int i = 0; i < kLoads; ++i)
        if (first + i * kGatherThreads < packs) values[i] = from[first + i * kGatherThreads];
#pragma unroll
      for (int i = 0; i < kLoads; ++i)
        if (first + i * kGatherThreads < packs) into[first + i * kGatherThreads] = values[i];
    }
  }
}

}  // namespace

void gather_grouped_rows(cudaStream_t stream, const void* x, const int32_t* map, GroupRows rows,
                         GroupedShape shape, int64_t row_bytes, void* to) {
  const auto launch = [&](auto pack) {
    using Pack = decltype(pack);
    gather_kernel<<<num_blocks(shape.num_rows), kGatherThreads, 0, stream>>>(
        static_cast<const Pack*>(x), map, rows, shape.groups, shape.num_rows,
        row_bytes / static_cast<int64_t>(sizeof(Pack)), static_cast<Pack*>(to));
  };
  if ((row_bytes | reinterpret_cast<intptr_t>(x) | reinterpret_cast<intptr_t>(to)) % 16 == 0)
    launch(uint4{});
  else
    launch(uint16_t{});
}

void zero_empty_groups(cudaStream_t stream, GroupedShape shape, const int32_t* offsets, float* dw) {
  zero_empty_kernel<<<dim3(64, static_cast<unsigned>(shape.groups)), kGatherThreads, 0, stream>>>(
      offsets, shape.num_rows, shape.n * shape.k, dw);
}

void fill_table(cudaStream_t stream, const GroupTable& table, GroupedShape shape, GroupRows rows,
                bool trans_w, const bf16* x, const bf16* w, bf16* y) {
  table_kernel<<<1, kTableThreads, 0, stream>>>(table, shape, rows, trans_w, cuda_pointer(x), cuda_pointer(w),
                                                cuda_pointer(y));
}

void fill_weight_grad_table(cudaStream_t stream, const GroupTable& table, GroupedShape shape,
                            const int32_t* offsets, const bf16* dy, const bf16* x, float* dw) {
  weight_grad_table_kernel<<<1, kTableThreads, 0, stream>>>(table, shape, offsets, cuda_pointer(dy),
                                                            cuda_pointer(x), dw);
}

}  // namespace moesaic::ops
