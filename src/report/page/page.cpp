#include "report/page/page.h"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "report/page/figures.h"
#include "report/page/markup.h"
#include "report/page/parts.h"

namespace moesaic {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMaxCells = 300'000;  // letters of all heat maps together
constexpr size_t kMaxSpans = 24'000;   // of all timelines together

void make_names_distinct(std::vector<RunData>& runs) {
  std::map<std::string, int> count;
  for (const RunData& run : runs) ++count[run.name];
  for (RunData& run : runs)
    if (count[run.name] > 1) run.name = run.folder;
  count.clear();
  for (RunData& run : runs)
    if (const int times = ++count[run.name]; times > 1) run.name += fmt::format(" ({})", times);
}

std::string section(const char* title, const std::string& content, const char* kind = "grid") {
  if (content.empty()) return "";
  return fmt::format(R"(<section><h2>{}</h2><div class="{}">{}</div></section>)", title, kind, content);
}

/// Buttons that show and hide runs, and the slider.
std::string toolbar(const std::vector<RunData>& runs) {
  std::string html = R"(<nav>)";
  if (runs.size() > 1)
    for (size_t r = 0; r < runs.size(); ++r)
      html += fmt::format(
          R"(<button type="button" data-toggle="{}" aria-pressed="true"><i class="swatch {}"></i>{}</button>)",
          r, run_class(r), html_text(runs[r].name));
  return html +
         R"(<label>smoothing <input id="smoothing" type="range" min="0" max="0.99" step="0.01" value="0"><output>0</output></label></nav>)";
}

std::string title_of(const std::vector<RunData>& runs) {
  if (runs.size() == 1) return html_text(runs.front().name);
  return fmt::format("{} runs", runs.size());
}

}  // namespace

std::string report_page(std::vector<RunData> runs, const PageOptions& options) {
  make_names_distinct(runs);
  ordered_json charts = ordered_json::array(), maps = ordered_json::array(),
               timelines = ordered_json::array();
  std::string body;
  bool any_step = false;
  for (const RunData& run : runs) any_step |= run.metrics.size() > 0;
  if (any_step) {
    ChartSections sections = chart_sections(runs, options.x, charts);
    body += toolbar(runs);
    body += section("Loss", sections.loss, "grid one");
    body += section("Optimization", sections.optimization);
    body += section("Speed", sections.speed);
    body += section("Experts", sections.experts + load_figure(runs, kMaxCells, maps));
  } else {
    body += R"(<p class="warning">No step was logged yet.</p>)";
  }
  std::string memory;
  for (const RunData& run : runs) memory += memory_figure(run, runs.size() > 1);
  body += section("Memory", memory);
  body += section("Timeline", timeline_figure(runs, kMaxSpans, timelines), "grid one");
  body += section("Events", events_html(runs), "stack");
  body += section("Differences", differences_html(runs), "stack");
  body += section("Configuration", configurations_html(runs), "stack");

  ordered_json names = ordered_json::array();
  for (const RunData& run : runs) names.push_back(run.name);
  const ordered_json data{{"runs", names}, {"charts", charts}, {"maps", maps}, {"timelines", timelines}};
  std::string html =
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
      "script-src 'unsafe-inline'\"><title>";
  html += title_of(runs) + " · Moesaic</title><style>";
  html += page_style();
  html +=
      "</style></head><body><header><p>Moesaic run report</p><h1>" + title_of(runs) + "</h1></header><main>";
  html += overview_html(runs) + body;
  html +=
      "</main>\n<script type=\"application/json\" id=\"data\">" + json_in_html(data) + "</script>\n<script>";
  html += page_script();
  return html + "</script></body></html>\n";
}

void write_report(const std::vector<std::string>& folders, std::optional<int64_t> trace_step,
                  const PageOptions& options, const std::string& path) {
  require<ConfigError>(folders.size() <= kMaxRuns,
                       "{} runs were named, but a page holds at most {}: name fewer", folders.size(),
                       kMaxRuns);
  std::vector<RunData> runs;
  runs.reserve(folders.size());
  for (const std::string& folder : folders) runs.push_back(read_run(folder, trace_step));
  AtomicFile file(path);
  file.write(report_page(std::move(runs), options));
  file.commit();
}

}  // namespace moesaic
