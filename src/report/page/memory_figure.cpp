#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"
#include "report/page/figures.h"
#include "report/page/markup.h"

namespace moesaic {
namespace {

struct Bar {
  size_t rank = 0;
  const MemoryByPurpose* parts = nullptr;
  double sum = 0;
};

/// Every rank's bar; rank 0's alone, from metrics.jsonl, where run.json is missing.
std::vector<Bar> bars_of(const RunData& run) {
  std::vector<Bar> bars;
  if (run.info)
    for (size_t rank = 0; rank < run.info->memory.size(); ++rank)
      bars.push_back({rank, &run.info->memory[rank]});
  if (bars.empty() && !run.metrics.memory.empty()) bars.push_back({0, &run.metrics.memory});
  for (Bar& bar : bars)
    for (const auto& [purpose, bytes] : *bar.parts)
      bar.sum += static_cast<double>(std::max<int64_t>(bytes, 0));
  return bars;
}

}  // namespace

std::string memory_figure(const RunData& run, bool name_run) {
  std::vector<Bar> bars = bars_of(run);
  const size_t num_ranks = bars.size();
  std::string note;
  if (num_ranks > kMaxBars) {
    std::stable_sort(bars.begin(), bars.end(), [](const Bar& a, const Bar& b) { return a.sum > b.sum; });
    bars.resize(kMaxBars);
    note = fmt::format("<p>The {} of {} ranks that use most.</p>", kMaxBars, num_ranks);
  }
  double largest = 0;
  for (const Bar& bar : bars) largest = std::max(largest, bar.sum);
  if (!(largest > 0)) return "";
  std::string key, rows;
  for (size_t p = 0; p < bars.front().parts->size(); ++p)
    key += fmt::format(R"(<span class="key"><i class="fill p{}"></i>{}</span>)", p % 7,
                       html_text((*bars.front().parts)[p].first));
  constexpr int kRow = 26;
  for (size_t i = 0; i < bars.size(); ++i) {
    const int top = static_cast<int>(i) * kRow;
    double at = 0;
    rows += fmt::format(R"(<text class="yt" x="0" dx="-8" y="{}">rank {}</text>)", top + 17, bars[i].rank);
    for (size_t p = 0; p < bars[i].parts->size(); ++p) {
      const auto& [purpose, signed_bytes] = (*bars[i].parts)[p];
      const int64_t bytes = std::max<int64_t>(signed_bytes, 0);
      const double width = static_cast<double>(bytes) / largest * 84;  // the sum's text stands in the rest
      if (width > 0)
        rows += fmt::format(
            R"(<rect class="p{}" x="{:.3f}%" y="{}" width="{:.3f}%" height="18"><title>{}: {}</title></rect>)",
            p % 7, at, top + 4, width, html_text(purpose), format_bytes(bytes));
      at += width;
    }
    rows += fmt::format(R"(<text class="sum" x="{:.3f}%" dx="8" y="{}">{}</text>)", at, top + 17,
                        format_bytes(static_cast<int64_t>(std::min(bars[i].sum, 9e18))));
  }
  return fmt::format(
      R"(<figure class="chart memory"><figcaption><b>Memory of the device{}</b> <span class="unit">by purpose</span></figcaption>{})"
      R"(<div class="plot" style="height:{}px"><svg role="img" aria-label="memory per rank by purpose">{}</svg></div>)"
      R"(<div class="x-name">{}</div></figure>)",
      name_run ? ": " + html_text(run.name) : "", note, bars.size() * kRow + 4, rows, key);
}

}  // namespace moesaic
