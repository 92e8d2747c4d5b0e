#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "report/page/figures.h"
#include "report/page/markup.h"

namespace moesaic {
namespace {

using nlohmann::ordered_json;

/// Begins, lengths (in tenths of a microsecond), names and segments of one stream's spans.
ordered_json spans_json(const std::vector<Span>& spans) {
  auto begins = ordered_json::array(), lengths = ordered_json::array(), names = ordered_json::array(),
       segments = ordered_json::array();
  for (const Span& span : spans) {
    begins.push_back(std::llround(span.begin * 10));
    lengths.push_back(std::llround((span.end - span.begin) * 10));
    names.push_back(span.name);
    segments.push_back(span.segment);
  }
  return {begins, lengths, names, segments};
}

std::string use_table(const Timeline& timeline) {
  const size_t compute = timeline.compute_stream();
  const auto share = [&](double us) {
    return fmt::format("<td>{:.1f} %</td>", timeline.duration_us > 0 ? 100 * us / timeline.duration_us : 0.0);
  };
  std::string html = R"(<div class="scroll"><table class="numbers"><thead><tr><th>rank</th>)";
  for (const std::string& stream : timeline.streams) html += "<th>" + html_text(stream) + " busy</th>";
  html += "<th>not hidden by " + html_text(timeline.streams[compute]) + "</th></tr></thead><tbody>";
  for (const RankTimeline& rank : timeline.ranks) {
    html += fmt::format("<tr><td>{}</td>", rank.rank);
    for (size_t s = 0; s < timeline.streams.size(); ++s) html += share(rank.busy_us(s));
    html += share(rank.exposed_us(compute)) + "</tr>";
  }
  return html + "</tbody></table></div>";
}

}  // namespace

std::string timeline_figure(std::vector<RunData>& runs, size_t max_spans, ordered_json& data) {
  std::string options, tables;
  size_t count = 0;
  for (const RunData& run : runs) count += run.timeline ? run.timeline->ranks.size() : 0;
  for (size_t r = 0; r < runs.size(); ++r) {
    if (!runs[r].timeline) continue;
    Timeline& timeline = *runs[r].timeline;
    const std::string name = runs.size() > 1 ? html_text(runs[r].name) + ": " : "";
    tables +=
        fmt::format("<p>{}step {} took {}; share of it that each stream was busy{}:</p>", name,
                    runs[r].trace_step, format_seconds(timeline.duration_us * 1e-6),
                    timeline.num_ranks > static_cast<int64_t>(timeline.ranks.size())
                        ? fmt::format(" (first {} of {} ranks)", timeline.ranks.size(), timeline.num_ranks)
                        : "");
    tables += use_table(timeline);
    timeline.thin(max_spans / count);
    ordered_json ranks = ordered_json::array();
    for (size_t i = 0; i < timeline.ranks.size(); ++i) {
      const RankTimeline& rank = timeline.ranks[i];
      options += fmt::format(R"(<option value="{}:{}">{}step {}, rank {}</option>)", data.size(), i, name,
                             runs[r].trace_step, rank.rank);
      ordered_json streams = ordered_json::array();
      for (const auto& spans : rank.streams) streams.push_back(spans_json(spans));
      ranks.push_back({{"rank", rank.rank}, {"leftOut", rank.left_out}, {"streams", streams}});
    }
    data.push_back({{"streams", timeline.streams},
                    {"names", timeline.names},
                    {"segments", timeline.segments},
                    {"end", std::llround(timeline.duration_us * 10)},
                    {"ranks", ranks}});
  }
  if (options.empty()) return "";
  return R"(<figure class="chart wide timeline"><figcaption><b>Timeline of a step</b> <span class="unit">by stream</span>)"
         R"(<label>show <select>)" +
         options +
         R"(</select></label><output></output></figcaption><p>Drag over a part to enlarge it, double-click to see all. )"
         R"(<span class="note"></span></p><div class="plot"><svg role="img" aria-label="operations of a step by stream"></svg></div>)"
         R"(<div class="x-name">time<span class="segments"></span></div>)" +
         tables + "</figure>";
}

}  // namespace moesaic
