#pragma once
// The streams of a rank. Overlap is a choice of stream: ops on one stream run in order, ops on different
// streams run side by side unless the planner finds that they touch the same memory (plan.h).
#include <array>
#include <cstdint>
#include <string_view>

namespace moesaic {

enum class Stream : uint8_t {
  compute,  // matmuls, attention and the memory-bound ops between them
  comm,     // exchanges inside a node: heads, tokens, routing
  reduce,   // gradient reduction and parameter gathering
  copy,     // host to device and back
};
inline constexpr int kNumStreams = 4;
inline constexpr std::array<std::string_view, kNumStreams> kStreamNames{"compute", "comm", "reduce", "copy"};

constexpr size_t index_of(Stream stream) {
  return static_cast<size_t>(stream);
}
constexpr std::string_view name_of(Stream stream) {
  return kStreamNames[index_of(stream)];
}

}  // namespace moesaic
