#include "report/page/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "report/page/markup.h"
#include "report/page/scale.h"
#include "report/page/series.h"

namespace moesaic {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMaxMarks = 300;  // per chart; more would hide it
constexpr double kBox = 1000;      // side of the stretched box that lines are drawn in
constexpr double kLogRatio = 50;   // largest over median

/// A path through the points; a gap where y is NaN. `dots`: a dot at each instead.
std::string path_of(const std::vector<Point>& points, const Axis& x, const Axis& y, bool dots) {
  std::string path;
  bool pen_down = false;
  for (const Point& p : points) {
    if (!is_shown(p.y) || (y.log && p.y <= 0)) {
      pen_down = false;
      continue;
    }
    path += fmt::format("{}{:.5g} {:.5g}", dots || !pen_down ? "M" : "L", x.at(p.x) * kBox,
                        (1 - y.at(p.y)) * kBox);
    if (dots || !pen_down) path += dots ? "h.01" : "";
    pen_down = true;
  }
  return path;
}

/// A line of one point is not drawn: it becomes a dot.
bool lone(const std::vector<Point>& points) {
  return std::count_if(points.begin(), points.end(), [](const Point& p) { return is_shown(p.y); }) == 1;
}

ordered_json numbers(const std::vector<Point>& points, double Point::*part) {
  auto list = ordered_json::array();
  for (const Point& p : points) {
    // Read back from its short form, so that it is written shortly.
    const double value = p.*part;
    if (part == &Point::x && std::floor(value) == value && std::abs(value) < 1e15)
      list.push_back(static_cast<int64_t>(value));
    else if (is_shown(value))
      list.push_back(std::strtod(
          (part == &Point::x ? fmt::format("{:.8g}", value) : short_number(value)).c_str(), nullptr));
    else
      list.push_back(nullptr);
  }
  return list;
}

std::string marks_svg(const ChartSpec& spec, const Axis& x) {
  std::string svg;
  size_t count = 0;
  for (const ChartMark& mark : spec.marks) {
    const double at = 100 * x.at(mark.x);
    if (!(at >= 0 && at <= 100) || ++count > kMaxMarks) continue;
    const std::string title = "<title>" + html_text(mark.text) + "</title>";
    if (mark.kind == ChartMark::Kind::skip)
      svg += fmt::format(R"(<text class="mark skip" data-run="{}" x="{:.3f}%" y="100%" dy="-4">×{}</text>)",
                         mark.run, at, title);
    else
      svg += fmt::format(
          R"(<line class="mark {}" data-run="{}" x1="{:.3f}%" x2="{:.3f}%" y1="0" y2="100%">{}</line>)",
          mark.kind == ChartMark::Kind::restart ? "restart" : "repeat", mark.run, at, at, title);
  }
  return svg;
}

/// What the kinds of series and marks of a chart look like, when there are several.
std::string key_html(const ChartSpec& spec) {
  std::vector<std::pair<std::string, std::string>> keys;  // class, name
  const auto add = [&](const std::string& look, const std::string& name) {
    if (!name.empty() && std::find(keys.begin(), keys.end(), std::pair(look, name)) == keys.end())
      keys.emplace_back(look, name);
  };
  for (const ChartSeries& s : spec.series) add(s.style == ChartSeries::Style::dots ? "dots" : "line", s.name);
  for (const ChartGuide& g : spec.guides) add("guide", g.label);
  for (const ChartMark& m : spec.marks) {
    if (m.kind == ChartMark::Kind::skip) add("skip", "skipped step");
    if (m.kind == ChartMark::Kind::restart) add("restart", "resumed");
    if (m.kind == ChartMark::Kind::repeat) add("repeat", "step repeated");
  }
  std::string html;
  for (const auto& [look, name] : keys)
    html += fmt::format(R"(<span class="key"><i class="{}">{}</i>{}</span>)", look, look == "skip" ? "×" : "",
                        html_text(name));
  return html;
}

std::string caption(const ChartSpec& spec, const std::string& more) {
  std::string html = fmt::format("<figcaption><b>{}</b>", html_text(spec.title));
  if (!spec.unit.empty()) html += fmt::format(R"( <span class="unit">{}</span>)", html_text(spec.unit));
  html += more + "<output></output></figcaption>";
  if (!spec.explanation.empty()) html += fmt::format("<p>{}</p>", html_text(spec.explanation));
  return html;
}

}  // namespace

bool asks_for_log(const std::vector<ChartSeries>& series) {
  std::vector<double> values;
  for (const ChartSeries& s : series)
    for (const double y : s.y)
      if (is_shown(y)) {
        if (y <= 0) return false;
        values.push_back(y);
      }
  if (values.empty()) return false;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *std::max_element(middle, values.end()) > kLogRatio * *middle;
}

std::string x_axis_svg(const Axis& axis) {
  std::string svg;
  for (size_t i = 0; i < axis.ticks.size(); ++i) {
    const double at = 100 * axis.at(axis.ticks[i]);
    svg += fmt::format(R"(<line class="grid" x1="{0:.3f}%" x2="{0:.3f}%" y1="0" y2="100%"/>)"
                       R"(<text class="xt" x="{0:.3f}%" y="100%" dy="17">{1}</text>)",
                       at, axis.labels[i]);
  }
  return svg;
}

std::string y_axis_svg(const Axis& axis) {
  std::string svg;
  for (size_t i = 0; i < axis.ticks.size(); ++i) {
    const double at = 100 * (1 - axis.at(axis.ticks[i]));
    svg += fmt::format(R"(<line class="grid" x1="0" x2="100%" y1="{0:.3f}%" y2="{0:.3f}%"/>)"
                       R"(<text class="yt" x="0" dx="-8" y="{0:.3f}%" dy="4">{1}</text>)",
                       at, axis.labels[i]);
  }
  return svg;
}

std::string chart_html(const ChartSpec& spec, ordered_json& data) {
  std::optional<Extent> extent_x, extent_y;
  for (const ChartSeries& s : spec.series) {
    if (!extent_of(s.y)) continue;
    extent_x = join(extent_x, extent_of(s.x));
    extent_y = join(extent_y, extent_of(s.y));
  }
  if (!extent_x || !extent_y)
    return fmt::format(R"(<figure class="chart">{}<div class="nothing">no finite value</div></figure>)",
                       caption(spec, ""));
  const bool log = spec.may_log && asks_for_log(spec.series);
  for (const ChartGuide& guide : spec.guides)
    if (!log || guide.y > 0) extent_y = join(extent_y, Extent{guide.y, guide.y});
  if (spec.from_zero && !log) extent_y = join(extent_y, Extent{0, 0});
  const Axis x = linear_axis(*extent_x, 6, false),
             y = log ? log_axis(*extent_y) : linear_axis(*extent_y, 5, true);

  std::string paths;
  auto series_data = ordered_json::array();
  for (const ChartSeries& s : spec.series) {
    const size_t index = series_data.size();
    const Decimated d = decimate(s.x, s.y, spec.buckets);
    const bool dots = s.style == ChartSeries::Style::dots || lone(d.extremes);
    const auto add = [&](const std::string& look, const std::string& path) {
      if (!path.empty())
        paths += fmt::format(R"(<path class="{} {}" data-run="{}" data-series="{}" d="{}"/>)", look,
                             run_class(s.run), s.run, index, path);
    };
    // Of a long series the line would be a thick band: it becomes a faint one with its mean over it.
    add(dots ? "thin" : d.means.empty() ? "line" : "line faint", path_of(d.extremes, x, y, false));
    if (!dots && !d.means.empty()) add("line smoothed", path_of(d.means, x, y, false));
    if (dots) add("dots", path_of(d.extremes, x, y, true));
    ordered_json one{{"run", s.run},
                     {"name", s.name},
                     {"x", numbers(d.extremes, &Point::x)},
                     {"y", numbers(d.extremes, &Point::y)}};
    if (dots) one["dots"] = true;
    if (!d.means.empty()) {
      one["mx"] = numbers(d.means, &Point::x);
      one["my"] = numbers(d.means, &Point::y);
    }
    series_data.push_back(std::move(one));
  }
  for (const ChartGuide& guide : spec.guides)
    if (y.at(guide.y) >= 0 && y.at(guide.y) <= 1)
      paths += fmt::format(R"(<path class="guide" data-run="{}" d="M0 {:.5g}H1000"/>)", guide.run,
                           (1 - y.at(guide.y)) * kBox);

  const std::string svg = fmt::format(
      R"(<svg role="img" aria-label="{} over {}">{}{}<svg viewBox="0 0 1000 1000" preserveAspectRatio="none">{}</svg>{}</svg>)",
      html_text(spec.title), html_text(spec.x_name), x_axis_svg(x), y_axis_svg(y), paths, marks_svg(spec, x));
  std::string html = fmt::format(
      R"(<figure class="chart" data-chart="{}">{}<div class="plot">{}</div><div class="x-name">{}{}</div></figure>)",
      data.size(), caption(spec, log ? R"( <span class="unit">(logarithmic)</span>)" : ""), svg,
      html_text(spec.x_name), key_html(spec));
  ordered_json numbers_of_chart{{"xName", spec.x_name},
                                {"x", {x.low, x.high}},
                                {"y", {y.low, y.high}},
                                {"log", y.log},
                                {"series", std::move(series_data)}};
  if (spec.exact) numbers_of_chart["exact"] = true;
  data.push_back(std::move(numbers_of_chart));
  return html;
}

}  // namespace moesaic
