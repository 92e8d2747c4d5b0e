#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <map>

#include "report/page/markup.h"
#include "report/page/parts.h"

namespace moesaic {
namespace {

constexpr size_t kMaxRows = 500;  // events of one run in the page

std::string time_text(double unix_seconds) {
  if (!(unix_seconds > 0 && unix_seconds < 4e9)) return "";
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::gmtime(static_cast<std::time_t>(unix_seconds)));
}

/// Saves are routine and many: when there are too many events, they go first, then the oldest.
std::vector<const LoggedEvent*> events_to_show(const RunData& run) {
  std::vector<const LoggedEvent*> events;
  for (const LoggedEvent& event : run.events) events.push_back(&event);
  const auto shrink = [&](const auto& may_go) {
    size_t surplus = events.size() > kMaxRows ? events.size() - kMaxRows : 0;
    std::erase_if(events,
                  [&](const LoggedEvent* event) { return surplus > 0 && may_go(*event) && surplus-- > 0; });
  };
  shrink([](const LoggedEvent& event) { return event.kind == "save"; });
  shrink([](const LoggedEvent&) { return true; });
  return events;
}

std::string badge_class(const std::string& kind) {
  for (const char* known : {"start", "restart", "skip", "repeat", "save", "stop"})
    if (kind == known) return kind;
  return "other";
}

/// `content` under the run's name, to fold away.
std::string under_name(const std::vector<RunData>& runs, size_t r, const std::string& summary,
                       const std::string& content, bool open) {
  return fmt::format(
      R"(<details data-run="{}"{}><summary><i class="swatch {}"></i>{}{}</summary>{}</details>)", r,
      open ? " open" : "", run_class(r), runs.size() > 1 ? html_text(runs[r].name) + ": " : "",
      html_text(summary), content);
}

}  // namespace

std::string events_html(const std::vector<RunData>& runs) {
  std::string html;
  for (size_t r = 0; r < runs.size(); ++r) {
    if (runs[r].events.empty()) continue;
    const auto events = events_to_show(runs[r]);
    const int64_t left_out =
        runs[r].events_left_out + static_cast<int64_t>(runs[r].events.size() - events.size());
    std::string rows =
        R"(<div class="scroll tall"><table class="events"><thead><tr><th>Step</th><th>Event</th><th>Time (UTC)</th><th></th></tr></thead><tbody>)";
    for (const LoggedEvent* event : events)
      rows += fmt::format(
          R"(<tr><td>{}</td><td><span class="badge {}">{}</span></td><td>{}</td><td>{}</td></tr>)",
          event->step, badge_class(event->kind), html_text(event->kind), time_text(event->time),
          html_text(event->message));
    rows += "</tbody></table></div>";
    if (left_out > 0) rows += fmt::format("<p>{} more in events.jsonl.</p>", left_out);
    const int64_t count = static_cast<int64_t>(runs[r].events.size()) + runs[r].events_left_out;
    html +=
        under_name(runs, r, fmt::format("{} event{}", count, count == 1 ? "" : "s"), rows, runs.size() == 1);
  }
  return html;
}

std::string differences_html(const std::vector<RunData>& runs) {
  std::vector<std::string> keys;  // in the order of the first file that has them
  std::map<std::string, std::vector<std::string>> values;
  for (size_t r = 0; r < runs.size(); ++r)
    for (const auto& [key, value] : runs[r].config) {
      auto& of_key = values[key];
      if (of_key.empty()) {
        of_key.resize(runs.size());
        keys.push_back(key);
      }
      of_key[r] = value;
    }
  std::string rows;
  for (const std::string& key : keys) {
    const auto& of_key = values[key];
    if (std::all_of(of_key.begin(), of_key.end(), [&](const std::string& v) { return v == of_key.front(); }))
      continue;
    rows += "<tr><td><code>" + html_text(key) + "</code></td>";
    for (const std::string& value : of_key)
      rows += value.empty() ? "<td>–</td>" : "<td><code>" + html_text(value) + "</code></td>";
    rows += "</tr>";
  }
  if (runs.size() < 2) return "";
  if (rows.empty()) return "<p>All runs have the same configuration.</p>";
  std::string html = R"(<div class="scroll"><table class="numbers"><thead><tr><th>Setting</th>)";
  for (size_t r = 0; r < runs.size(); ++r)
    html += fmt::format(R"(<th><i class="swatch {}"></i>{}</th>)", run_class(r), html_text(runs[r].name));
  return html + "</tr></thead><tbody>" + rows + "</tbody></table></div>";
}

std::string configurations_html(const std::vector<RunData>& runs) {
  std::string html;
  for (size_t r = 0; r < runs.size(); ++r)
    if (!runs[r].config_text.empty())
      html += under_name(runs, r, "config.toml", "<pre>" + html_text(runs[r].config_text) + "</pre>", false);
  return html;
}

}  // namespace moesaic
