#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>

#include "report/page/chart.h"
#include "report/page/parts.h"
#include "report/page/scale.h"

namespace moesaic {
namespace {

constexpr size_t kSeriesBudget = 2500;  // buckets of one kind of line, over all runs

/// What lines are drawn over: how it is called, and what a step or a second of training is worth.
struct XAxisKind {
  PageX x;
  const char* name;
  double unit = 1;  // seconds, where it is time
};

/// Of time, the unit that suits the longest run.
XAxisKind kind_of(const std::vector<RunData>& runs, PageX x) {
  if (x == PageX::step) return {x, "step"};
  if (x == PageX::tokens) return {x, "tokens"};
  double longest = 0;
  for (const RunData& run : runs) {
    double sum = 0;
    for (const double seconds : run.metrics.seconds) sum += seconds > 0 && is_shown(seconds) ? seconds : 0;
    longest = std::max(longest, sum);
  }
  if (longest < 180) return {x, "seconds of training"};
  if (longest < 3 * 3600) return {x, "minutes of training", 60};
  return {x, "hours of training", 3600};
}

/// What each step of a run is drawn over; never falls.
std::vector<double> x_of(const RunData& run, const XAxisKind& kind) {
  const MetricColumns& m = run.metrics;
  if (kind.x == PageX::step) return m.step;
  std::vector<double> values;
  values.reserve(m.size());
  double sum = 0;
  for (size_t i = 0; i < m.size(); ++i) {
    const double more = kind.x == PageX::tokens ? m.tokens_per_s[i] * m.seconds[i] : m.seconds[i] / kind.unit;
    if (more > 0 && is_shown(more)) sum += more;
    values.push_back(kind.x == PageX::tokens ? std::round(sum) : sum);
  }
  return values;
}

class Charts {
 public:
  Charts(const std::vector<RunData>& runs, PageX x, nlohmann::ordered_json& data)
      : runs_(runs), x_(kind_of(runs, x)), data_(data) {
    for (const RunData& run : runs) xs_.push_back(x_of(run, x_));
  }

  ChartSpec spec(std::string title, std::string unit = "", std::string explanation = "") const {
    ChartSpec s;
    s.title = std::move(title), s.unit = std::move(unit), s.explanation = std::move(explanation),
    s.x_name = x_.name;
    s.buckets = std::clamp<size_t>(kSeriesBudget / runs_.size(), 125, 500);
    return s;
  }
  /// A line per run.
  void add(ChartSpec& s, std::vector<double> MetricColumns::*column, double factor = 1,
           const std::string& name = "") const {
    for (size_t r = 0; r < runs_.size(); ++r) {
      ChartSeries one{r, name, ChartSeries::Style::line, xs_[r], runs_[r].metrics.*column};
      for (double& y : one.y) y *= factor;
      s.series.push_back(std::move(one));
    }
  }
  /// Dots where there is a value.
  void add_dots(ChartSpec& s, std::vector<double> MetricColumns::*column, const std::string& name) const {
    for (size_t r = 0; r < runs_.size(); ++r) {
      ChartSeries one{r, name, ChartSeries::Style::dots, {}, {}};
      const auto& values = runs_[r].metrics.*column;
      for (size_t i = 0; i < values.size(); ++i)
        if (is_shown(values[i])) one.x.push_back(xs_[r][i]), one.y.push_back(values[i]);
      if (!one.x.empty()) s.series.push_back(std::move(one));
    }
  }
  void mark_skips(ChartSpec& s) const {
    for (size_t r = 0; r < runs_.size(); ++r)
      for (size_t i = 0; i < runs_[r].metrics.size(); ++i)
        if (runs_[r].metrics.skipped[i] != 0)
          s.marks.push_back(
              {r, ChartMark::Kind::skip, xs_[r][i],
               fmt::format("{}: step {:.0f} was skipped", runs_[r].name, runs_[r].metrics.step[i])});
  }
  void mark_events(ChartSpec& s) const {
    for (size_t r = 0; r < runs_.size(); ++r)
      for (const LoggedEvent& event : runs_[r].events) {
        if (event.kind != "restart" && event.kind != "repeat") continue;
        const auto& steps = runs_[r].metrics.step;
        const auto at = std::lower_bound(steps.begin(), steps.end(), static_cast<double>(event.step));
        if (at == steps.end()) continue;
        s.marks.push_back({r, event.kind == "restart" ? ChartMark::Kind::restart : ChartMark::Kind::repeat,
                           xs_[r][static_cast<size_t>(at - steps.begin())],
                           runs_[r].name + ": " + event.message});
      }
  }
  void guide_clip(ChartSpec& s) const {
    for (size_t r = 0; r < runs_.size(); ++r) {
      const std::string text = runs_[r].setting("optim.clip");
      const double clip = std::strtod(text.c_str(), nullptr);
      if (clip > 0 && is_shown(clip)) s.guides.push_back({r, clip, "clipped above"});
    }
  }
  /// Whether anything finite, and other than zero, was measured.
  bool any(std::vector<double> MetricColumns::*column) const {
    for (const RunData& run : runs_)
      for (const double v : run.metrics.*column)
        if (is_shown(v) && v != 0) return true;
    return false;
  }
  std::string draw(const ChartSpec& s) const { return chart_html(s, data_); }

 private:
  const std::vector<RunData>& runs_;
  const XAxisKind x_;
  nlohmann::ordered_json& data_;
  std::vector<std::vector<double>> xs_;
};

}  // namespace

ChartSections chart_sections(const std::vector<RunData>& runs, PageX x, nlohmann::ordered_json& data) {
  const Charts charts(runs, x, data);
  ChartSections sections;
  const auto line = [&](std::string& section, std::vector<double> MetricColumns::*column, const char* title,
                        const char* unit, const char* explanation, bool from_zero, double factor = 1) {
    if (!charts.any(column)) return;
    ChartSpec s = charts.spec(title, unit, explanation);
    s.from_zero = from_zero;
    s.exact = column == &MetricColumns::lr;
    charts.add(s, column, factor);
    section += charts.draw(s);
  };

  ChartSpec loss = charts.spec("Loss", "nats per token");
  loss.may_log = true;
  const bool evaluated = charts.any(&MetricColumns::val_loss);
  charts.add(loss, &MetricColumns::loss, 1, evaluated ? "training" : "");
  if (evaluated) charts.add_dots(loss, &MetricColumns::val_loss, "held-out");
  charts.mark_skips(loss);
  charts.mark_events(loss);
  sections.loss = charts.draw(loss);

  ChartSpec norm = charts.spec("Gradient norm", "before clipping");
  norm.may_log = true;
  charts.add(norm, &MetricColumns::grad_norm);
  charts.guide_clip(norm);
  charts.mark_skips(norm);
  sections.optimization = charts.draw(norm);
  line(sections.optimization, &MetricColumns::lr, "Learning rate", "", "", true);
  line(sections.optimization, &MetricColumns::aux_loss, "Balance loss", "as weighted into the objective", "",
       true);
  line(sections.optimization, &MetricColumns::z_loss, "Router z-loss", "as weighted into the objective", "",
       true);

  ChartSpec speed = charts.spec("Throughput", "tokens/s, all ranks");
  speed.from_zero = true;
  charts.add(speed, &MetricColumns::tokens_per_s);
  charts.mark_events(speed);
  sections.speed = charts.draw(speed);
  line(sections.speed, &MetricColumns::mfu, "MFU", "% of the devices' peak", "", true, 100);

  line(sections.experts, &MetricColumns::balance, "Busiest expert", "over the mean, worst layer",
       "1 is perfect balance; the busiest expert's rank sets the pace of a step.", false);
  line(sections.experts, &MetricColumns::dropped, "Dropped rows", "per step, all layers and ranks", "", true);
  return sections;
}

}  // namespace moesaic
