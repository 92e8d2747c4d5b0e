#include "report/trace.h"

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/check.h"
#include "base/file.h"

namespace moesaic {
namespace {

using nlohmann::ordered_json;

ordered_json metadata(const char* kind, int64_t rank, int64_t row, const char* key,
                      const ordered_json& value) {
  return {{"ph", "M"}, {"name", kind}, {"pid", rank}, {"tid", row}, {"args", {{key, value}}}};
}

}  // namespace

std::string chrome_trace_json(const std::vector<TraceEvent>& events) {
  std::map<std::string, int64_t> row_of;
  std::string text = R"({"displayTimeUnit":"ms","traceEvents":[)";
  const auto add = [&](const ordered_json& event) {
    text += text.back() == '[' ? "\n" : ",\n";
    text += event.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  };
  std::set<int64_t> ranks;
  std::set<std::pair<int64_t, int64_t>> rows;
  for (const TraceEvent& event : events) {
    MOESAIC_CHECK(event.end_us >= event.start_us, "{} ends at {} us, before its start at {} us", event.name,
                  event.end_us, event.start_us);
    const int64_t row = row_of.try_emplace(event.stream, static_cast<int64_t>(row_of.size())).first->second;
    if (ranks.insert(event.rank).second) {
      add(metadata("process_name", event.rank, 0, "name", "rank " + std::to_string(event.rank)));
      add(metadata("process_sort_index", event.rank, 0, "sort_index", event.rank));
    }
    if (rows.insert({event.rank, row}).second) {
      add(metadata("thread_name", event.rank, row, "name", event.stream));
      add(metadata("thread_sort_index", event.rank, row, "sort_index", row));
    }
    add({{"ph", "X"},
         {"name", event.name},
         {"cat", event.segment},
         {"pid", event.rank},
         {"tid", row},
         {"ts", event.start_us},
         {"dur", event.end_us - event.start_us},
         {"args", {{"segment", event.segment}, {"bytes", event.bytes}, {"operations", event.operations}}}});
  }
  return text + "\n]}\n";
}

void write_chrome_trace(const std::string& path, const std::vector<TraceEvent>& events) {
  AtomicFile file(path);
  file.write(chrome_trace_json(events));
  file.commit();
}

}  // namespace moesaic
