#include "train/trace_gather.h"

#include <chrono>
#include <sstream>

namespace moesaic {

void record_trace(Rank& rank, std::vector<TraceEvent>& events) {
  rank.device->set_trace([&events, r = rank.rank](const OpEvent& e) {
    events.push_back({e.node->name, e.node->segment, r, std::string(name_of(e.node->streams.front())),
                      e.start * 1e6, e.end * 1e6,
                      static_cast<int64_t>(e.node->cost.bytes + e.node->cost.sent),
                      static_cast<int64_t>(e.node->cost.operations)});
  });
}

std::vector<TraceEvent> gather_trace(Rank& rank, const std::vector<TraceEvent>& events) {
  std::string text;
  for (const TraceEvent& e : events)
    text += fmt::format("{}\t{}\t{}\t{}\t{}\t{}\t{}\n", e.name, e.segment, e.stream, e.start_us, e.end_us,
                        e.bytes, e.operations);
  const auto texts = rank.control.all_gather(text);
  std::vector<TraceEvent> all;
  for (size_t r = 0; r < texts.size(); ++r) {
    std::istringstream lines(texts[r]);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream fields(line);
      TraceEvent e;
      e.rank = static_cast<int64_t>(r);
      std::getline(fields, e.name, '\t');
      std::getline(fields, e.segment, '\t');
      std::getline(fields, e.stream, '\t');
      fields >> e.start_us >> e.end_us >> e.bytes >> e.operations;
      all.push_back(std::move(e));
    }
  }
  return all;
}

}  // namespace moesaic
