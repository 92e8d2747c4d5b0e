#pragma once
// What the CUDA bodies of grouped products keep in their scratch: CUTLASS's tensor maps, the table of groups, and rows
// gathered through a row map.
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/check.h"

namespace moesaic::ops {

/// Bytes for CUTLASS's tensor maps: five of 128 bytes per multiprocessor, with room for more of both.
inline constexpr int64_t kTensorMapBytes = 256 << 10;

/// One product per group, out = a b (+ out), as CUTLASS reads it: arrays over groups, in device memory, filled by
/// fill_table (grouped_setup_cuda.cu). A group without rows has extents {0, ...}, so that no tile is made for it.
struct GroupTable {
  int32_t* extents;     // [groups][3] M, N, K
  const void **a, **b;  // [groups]
  void** out;
  int64_t *a_stride, *b_stride, *out_stride;  // [groups] elements between rows of what lies in memory
  int64_t groups;

  static constexpr int64_t kBytesPerGroup = 64;
};

/// The parts of the scratch, in this order.
struct GroupedScratch {
  std::byte* tensor_maps;
  GroupTable table;
  std::byte* gathered;  // rows of the first mapped operand, then, from the next 256 bytes on, of the second

  GroupedScratch(std::byte* scratch, int64_t groups) : tensor_maps(scratch) {
    std::byte* at = scratch + kTensorMapBytes;
    const auto take = [&](auto*& array, int64_t count) {
      array = reinterpret_cast<std::remove_reference_t<decltype(array)>>(at);
      at += count * static_cast<int64_t>(sizeof *array);
    };
    take(table.a, groups), take(table.b, groups), take(table.out, groups);
    take(table.a_stride, groups), take(table.b_stride, groups), take(table.out_stride, groups);
    take(table.extents, 3 * groups);
    table.groups = groups;
    gathered = scratch + kTensorMapBytes + table_bytes(groups);
  }
  static int64_t table_bytes(int64_t groups) { return round_up(groups * GroupTable::kBytesPerGroup, 256); }
  static int64_t rows_bytes(int64_t rows, int64_t width) { return round_up(rows * width * 2, 256); }
};

}  // namespace moesaic::ops
