#pragma once
// The tensor-core instructions that the tiles are made of (PTX ISA, "Warp-level matrix instructions").
#include <cuda_bf16.h>

#include <cstdint>

namespace moesaic::ops::attention {

/// d [16, 8] += a [16, 16] b [16, 8]. Lane l holds of d rows l/4 (0, 1) and l/4 + 8 (2, 3), columns 2 (l%4) and the next.
__device__ inline void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// Four 8 x 8 matrices of shared memory: lane l names row l%8 of matrix l/8 (16 bytes), and gets of each matrix row l/4,
/// columns 2 (l%4) and the next. Turned: of each transposed matrix.
__device__ inline void load_matrices(uint32_t (&r)[4], const __nv_bfloat16* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row)))
               : "memory");
}
__device__ inline void load_turned_matrices(uint32_t (&r)[4], const __nv_bfloat16* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row)))
               : "memory");
}

/// Starts to copy kBytes (4, 8 or 16, and so aligned) to shared memory; zeros unless `present`.
template <int kBytes>
__device__ void start_copy(void* to, const void* from, bool present) {
  const uint32_t shared = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  const int bytes = present ? kBytes : 0;
  if constexpr (kBytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(from), "r"(bytes)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared), "l"(from), "n"(kBytes),
                 "r"(bytes)
                 : "memory");
}
/// Closes a group of this thread's copies; then waits until all groups but the last `kLater` have arrived.
__device__ inline void close_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int kLater>
__device__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLater) : "memory");
}

__device__ inline uint32_t two_bf16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  uint32_t bits;
  memcpy(&bits, &pair, 4);
  return bits;
}

}  // namespace moesaic::ops::attention
