#pragma once
// A Chrome trace (report/trace.h) as spans of time, one list per rank and stream, few enough for a page.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moesaic {

struct Span {
  double begin = 0, end = 0;      // microseconds from the trace's first event
  int32_t name = 0, segment = 0;  // indices into the timeline's tables
};

struct StreamUse {
  std::string stream;
  double busy_us = 0;
};

struct RankTimeline {
  int64_t rank = 0;
  std::vector<std::vector<Span>> streams;  // [streams of the timeline], each in the order of time
  double busy_us(size_t stream) const;     // spans that overlap count once
  /// Time in which some stream is busy but `compute` is not: what overlap has not hidden.
  double exposed_us(size_t compute) const;
  int64_t left_out = 0;  // spans that thin() removed
};

struct Timeline {
  std::vector<std::string> streams, names, segments;  // in the order of their first events
  std::vector<RankTimeline> ranks;                    // the first kMaxRanks
  int64_t num_ranks = 0;                              // in the trace
  double duration_us = 0;
  static constexpr size_t kMaxRanks = 8;

  /// The stream "compute", else the first one.
  size_t compute_stream() const;
  /// Removes the shortest spans of each rank until it has at most `max_spans`.
  void thin(size_t max_spans);
};

/// Reads complete events ("ph": "X") with finite times, and the names of streams. Throws IoError when the file is missing,
/// not JSON, nested deeper than a trace is, or has more than 4 million events.
Timeline read_trace(const std::string& path);
Timeline parse_trace(std::string_view text, const std::string& where);

}  // namespace moesaic
