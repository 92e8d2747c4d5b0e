#include "report/event_log.h"

#include <chrono>
#include <nlohmann/json.hpp>

namespace moesaic {
namespace {

const char* name_of(EventKind kind) {
  switch (kind) {
    case EventKind::start:
      return "start";
    case EventKind::restart:
      return "restart";
    case EventKind::skip:
      return "skip";
    case EventKind::repeat:
      return "repeat";
    case EventKind::save:
      return "save";
    case EventKind::stop:
      return "stop";
    case EventKind::failure:
      return "failure";
  }
  return "";
}

}  // namespace

std::string to_json_line(const RunEvent& event, double unix_seconds) {
  nlohmann::ordered_json line;
  line["step"] = event.step;
  line["event"] = name_of(event.kind);
  line["time"] = unix_seconds;
  line["message"] = event.message;
  return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

void EventLog::write(const RunEvent& event) {
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  file_.write(to_json_line(event, now.count()));
}

}  // namespace moesaic
