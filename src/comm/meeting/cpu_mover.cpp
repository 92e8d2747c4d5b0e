#include <algorithm>
#include <cstring>

#include "comm/meeting/mover.h"

namespace moesaic {
namespace {

void copy_bytes(void* to, const void* from, int64_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<size_t>(bytes));
}

template <class T>
void sum_parts(T* out, const std::vector<const std::byte*>& parts, int64_t first, int64_t count) {
  constexpr int64_t kBlock = 1024;
  using Sum = std::conditional_t<std::is_same_v<T, int32_t>, int32_t, float>;
  Sum sum[kBlock];
  for (int64_t at = 0; at < count; at += kBlock) {
    const int64_t length = std::min(kBlock, count - at);
    for (size_t p = 0; p < parts.size(); ++p) {
      const T* part = reinterpret_cast<const T*>(parts[p]) + first + at;
      if (p == 0)
        for (int64_t i = 0; i < length; ++i) sum[i] = static_cast<Sum>(part[i]);
      else
        for (int64_t i = 0; i < length; ++i) sum[i] += static_cast<Sum>(part[i]);
    }
    for (int64_t i = 0; i < length; ++i) out[at + i] = static_cast<T>(sum[i]);
  }
}

class CpuMover : public Mover {
 public:
  Mark mark(void*) override { return 0; }
  void wait(void*, size_t, Mark) override {}
  void* fork(void* stream) override { return stream; }
  void join(void*) override {}
  void copy(void*, void* to, const void* from, int64_t bytes) override { copy_bytes(to, from, bytes); }
  void copy_blocks(void*, std::byte* to, const std::byte* from, const BlockCopy& c, size_t to_rank,
                   size_t from_rank) override {
    for (int64_t o = 0; o < c.outer; ++o)
      for (int64_t i = 0; i < c.rows; ++i)
        copy_bytes(to + c.recv_offset[from_rank] + o * c.recv_outer + i * c.recv_pitch,
                   from + c.send_offset[to_rank] + o * c.send_outer + i * c.send_pitch, c.width);
  }
  void copy_rows(void*, std::byte* to, const int32_t* recv_offsets, const std::vector<Rows>& sources,
                 size_t me, int64_t recv_rows, int64_t row_bytes) override {
    for (size_t p = 0; p < sources.size(); ++p) {
      const int64_t first = sources[p].offsets[me], at = recv_offsets[p];
      const int64_t rows = std::min<int64_t>(
          {int64_t{sources[p].offsets[me + 1]} - first, int64_t{recv_offsets[p + 1]} - at, recv_rows - at});
      copy_bytes(to + at * row_bytes, sources[p].data + first * row_bytes, rows * row_bytes);
    }
  }
  void sum(void*, void* out, const std::vector<const std::byte*>& parts, int64_t first, int64_t count,
           DType type) override {
    if (type == DType::i32) return sum_parts(static_cast<int32_t*>(out), parts, first, count);
    with_float(type, [&](auto zero) { sum_parts(static_cast<decltype(zero)*>(out), parts, first, count); });
  }
};

}  // namespace

std::unique_ptr<Mover> make_cpu_mover() {
  return std::make_unique<CpuMover>();
}

}  // namespace moesaic
