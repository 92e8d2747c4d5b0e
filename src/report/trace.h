#pragma once
// The timeline of a step as Chrome trace JSON, which https://ui.perfetto.dev and chrome://tracing open: one
// process per rank, one row per stream. Format: "Trace Event Format" (Google), complete events ("ph": "X")
// and metadata ("M").
#include <cstdint>
#include <string>
#include <vector>

namespace moesaic {

/// One op that ran on one stream.
struct TraceEvent {
  std::string name;  // the op: "grouped_matmul", "all_to_all"
  std::string
      segment;  // the part of the layer that it belongs to: "attention", "dispatch", "experts", "combine"
  int64_t rank = 0;        // becomes the process
  std::string stream;      // becomes the row; the same name has the same row on every rank
  double start_us = 0;     // microseconds on a clock common to all events
  double end_us = 0;       // not before start_us
  int64_t bytes = 0;       // moved, by the op's cost
  int64_t operations = 0;  // arithmetic operations, by the op's cost
};

/// The whole trace as JSON, one event a line. Rows stand in the order in which streams first occur.
std::string chrome_trace_json(const std::vector<TraceEvent>& events);
/// Writes it to `path`, whole or not at all. Throws IoError.
void write_chrome_trace(const std::string& path, const std::vector<TraceEvent>& events);

}  // namespace moesaic
