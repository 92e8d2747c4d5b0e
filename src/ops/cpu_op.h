#pragma once
// What the CPU bodies of ops share: scratch memory, and rows of any float type as FP32.
#include <cstring>
#include <type_traits>
#include <vector>

#include "device/cpu/threads.h"
#include "device/op_context.h"
#include "ops/optional.h"

namespace moesaic::ops {

/// Number of rows that a `count_of` or `offsets` tensor holds in its last element; all of them when it is absent.
inline int64_t count_rows(const OpContext& c, Handle count_of, int64_t all) {
  if (!count_of) return all;
  const int64_t count = c.in<int32_t>(count_of)[c.shape(count_of).numel() - 1];
  MOESAIC_CHECK(count >= 0 && count <= all, "{}: {} rows of {}", c.node().name, count, all);
  return count;
}

/// A buffer of the calling thread, aligned to cache lines, that only grows, so that a steady state allocates nothing.
/// Where the count depends on routing, ask at first for the most that the shapes allow: else it grows with every new extreme
/// of routing. `Use` is a type that names the use: two buffers that live at once need two. Contents: anything.
template <class Use>
float* scratch(int64_t count) {
  struct alignas(64) Line {
    float values[16];
  };
  thread_local std::vector<Line> lines;
  const auto needed = static_cast<size_t>((count + 15) / 16);
  if (lines.size() < needed) lines = std::vector<Line>(needed);
  return reinterpret_cast<float*>(lines.data());
}

/// to[i] = from[i], through FP32, rounded to nearest even.
template <class From, class To>
void convert(const From* from, To* to, int64_t count) {
  if constexpr (std::is_same_v<From, To>)
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(To));
  else
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<To>(static_cast<float>(from[i]));
}

/// A value as it is after being stored as T.
template <class T>
float rounded(float value) {
  return static_cast<float>(static_cast<T>(value));
}

/// A row-major FP32 matrix; rows are `stride` elements apart.
struct Floats {
  const float* data;
  int64_t stride;
};

/// Rows of a matrix as FP32: where they lie when they can be used as they are, else copied into scratch<Use>. With a
/// map, row i is row map[i] of `from`.
template <class Use, class T>
Floats float_rows(const T* from, int64_t stride, const int32_t* map, int64_t num_rows, int64_t num_cols) {
  if constexpr (std::is_same_v<T, float>)
    if (map == nullptr) return {from, stride};
  float* rows = scratch<Use>(num_rows * num_cols);
  for (int64_t i = 0; i < num_rows; ++i)
    convert(from + (map ? map[i] : i) * stride, rows + i * num_cols, num_cols);
  return {rows, num_cols};
}

/// Takes the scratch of float_rows<Use>, if it needs one, for up to max_rows rows.
template <class Use, class T>
void reserve_float_rows(const int32_t* map, int64_t max_rows, int64_t num_cols) {
  if (!std::is_same_v<T, float> || map != nullptr) scratch<Use>(max_rows * num_cols);
}

}  // namespace moesaic::ops
