#pragma once
// Line charts: a <figure> with axes, lines and marks as inline SVG, and the numbers behind the lines for the page's script
// (read-out, smoothing). Labels keep their size whatever the width: positions are percentages, lines lie in a stretched box.
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace moesaic {

struct ChartSeries {
  enum class Style { line, dots };  // dots: few points, joined by a thin line; never smoothed
  size_t run = 0;                   // index: decides the colour
  std::string name;                 // what it is, where a chart shows several kinds: "training"
  Style style = Style::line;
  std::vector<double> x, y;  // x never falls; NaN y: a gap
};

struct ChartMark {
  enum class Kind { skip, restart, repeat };
  size_t run = 0;
  Kind kind = Kind::skip;
  double x = 0;
  std::string text;  // shown on hovering
};

struct ChartGuide {  // a horizontal line
  size_t run = 0;
  double y = 0;
  std::string label;
};

struct ChartSpec {
  std::string title, unit;  // unit "" for none
  std::string explanation;  // one sentence under the title; "" for none
  std::string x_name;       // "step": charts of the same x share their cross-hair
  bool may_log = false;     // a logarithmic y axis when the values ask for it
  bool from_zero = false;   // the y axis begins at 0
  bool exact = false;       // a curve that smoothing would only falsify
  std::vector<ChartSeries> series;
  std::vector<ChartMark> marks;
  std::vector<ChartGuide> guides;
  size_t buckets = 500;  // of decimation (series.h)
};

/// The figure; its numbers are appended to `data`, an array. When nothing finite was measured: a line that says so.
std::string chart_html(const ChartSpec& spec, nlohmann::ordered_json& data);

/// Whether positive values differ so much that a linear axis would show little but the largest.
bool asks_for_log(const std::vector<ChartSeries>& series);

/// Tick labels and grid lines in percent, as SVG: shared by all figures that have an axis below or to the left.
struct Axis;
std::string x_axis_svg(const Axis& axis);
std::string y_axis_svg(const Axis& axis);

}  // namespace moesaic
