#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "report/page/chart.h"
#include "report/page/figures.h"
#include "report/page/markup.h"
#include "report/page/scale.h"

namespace moesaic {
namespace {

using nlohmann::ordered_json;

/// Columns of a history, joined so that there are at most `most`.
struct Columns {
  size_t join = 1, count = 0;
  Columns(size_t columns, size_t most) {
    while ((columns + join - 1) / join > std::max<size_t>(most, 1)) ++join;
    count = (columns + join - 1) / join;
  }
};

/// Mean over the joined columns that have data, per expert; empty when none has.
std::vector<double> joined(const LoadHistory& load, size_t layer, size_t column, size_t join) {
  std::vector<double> sums;
  double count = 0;
  for (size_t c = column * join; c < std::min((column + 1) * join, load.columns()); ++c) {
    const std::vector<double> ratios = load.over_mean(layer, c);
    if (ratios.empty()) continue;
    sums.resize(ratios.size());
    for (size_t e = 0; e < ratios.size(); ++e) sums[e] += ratios[e];
    ++count;
  }
  for (double& sum : sums) sum /= count;
  return sums;
}

ordered_json map_of(const RunData& run, size_t run_index, size_t max_cells) {
  const LoadHistory& load = run.metrics.load;
  constexpr size_t kFewColumns = 24;
  const size_t rows = load.layers() * load.experts();
  const Columns columns(load.columns(), std::max(kFewColumns, max_cells / std::max<size_t>(rows, 1)));
  const size_t layers = std::clamp<size_t>(max_cells / (load.experts() * columns.count), 1, load.layers());
  ordered_json all = ordered_json::array();    // a string per layer: its busiest expert
  ordered_json shown = ordered_json::array();  // the layers whose experts are in the page
  ordered_json experts = ordered_json::array();
  for (size_t l = 0, next = 0; l < load.layers(); ++l) {
    const bool in_page = l == next * load.layers() / layers;
    next += in_page ? 1 : 0;
    std::string busiest;
    std::vector<std::string> cells(in_page ? load.experts() : 0);
    for (size_t c = 0; c < columns.count; ++c) {
      const std::vector<double> ratios = joined(load, l, c, columns.join);
      busiest += ratios.empty() ? '.' : load_letter(*std::max_element(ratios.begin(), ratios.end()));
      for (size_t e = 0; e < cells.size(); ++e) cells[e] += ratios.empty() ? '.' : load_letter(ratios[e]);
    }
    all.push_back(busiest);
    if (!in_page) continue;
    shown.push_back(l);
    experts.push_back(cells);
  }
  return {{"run", run_index},
          {"name", run.name},
          {"first", load.first()},
          {"width", load.width() * static_cast<int64_t>(columns.join)},
          {"layers", shown},
          {"experts", experts},
          {"all", all}};
}

}  // namespace

std::string load_figure(const std::vector<RunData>& runs, size_t max_cells, ordered_json& data) {
  std::string options;
  size_t count = 0;
  for (const RunData& run : runs) count += run.metrics.load.empty() ? 0 : 1;
  for (size_t r = 0; r < runs.size(); ++r) {
    const LoadHistory& load = runs[r].metrics.load;
    if (load.empty()) continue;
    const ordered_json map = map_of(runs[r], r, max_cells / count);
    const std::string prefix = runs.size() > 1 ? html_text(runs[r].name) + ": " : "";
    options +=
        fmt::format(R"(<option value="{}:all">{}all layers, busiest expert</option>)", data.size(), prefix);
    for (size_t i = 0; i < map["layers"].size(); ++i)
      options += fmt::format(R"(<option value="{}:{}"{}>{}MoE layer {}</option>)", data.size(), i,
                             options.find(" selected") == std::string::npos ? " selected" : "", prefix,
                             map["layers"][i].get<size_t>());
    data.push_back(map);
  }
  if (options.empty()) return "";
  return R"(<figure class="chart wide heat"><figcaption><b>Load of each expert</b> <span class="unit">tokens routed, over the )"
         R"(mean of its layer</span><label>show <select>)" +
         options +
         R"(</select></label><output></output></figcaption><p>A row per expert, steps from left to right. 1 is balance; )"
         R"(an expert that gets nothing learns nothing.</p><div class="plot"><svg role="img" )"
         R"(aria-label="load of each expert over steps"></svg></div><div class="x-name">step<span class="ramp"></span></div></figure>)";
}

}  // namespace moesaic
