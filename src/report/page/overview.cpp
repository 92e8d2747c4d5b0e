#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/units.h"
#include "report/page/markup.h"
#include "report/page/parts.h"
#include "report/page/scale.h"

namespace moesaic {
namespace {

constexpr double kLongest = 1e10;  // seconds: numbers in a file may say anything

struct Fact {
  std::string name, value, more;  // value "" where unknown
};

double sum_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0,
                         [](double sum, double v) { return is_shown(v) ? sum + v : sum; });
}

std::optional<double> median_of(std::vector<double> values) {
  std::erase_if(values, [](double v) { return !is_shown(v); });
  if (values.empty()) return std::nullopt;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// "dp 2 × n 2": the axes of a layout that are not 1.
std::string layout_text(const RunData& run) {
  if (run.config.empty()) return "";
  std::string text;
  for (const char* axis : {"pp", "dp", "n"}) {
    const std::string size = run.setting(std::string("layout.") + axis);
    if (!size.empty() && size != "1") text += fmt::format("{}{} {}", text.empty() ? "" : " × ", axis, size);
  }
  return text.empty() ? "one rank" : text;
}

std::string unquoted(const std::string& text) {
  return text.size() >= 2 && text.front() == '"' && text.back() == '"' ? text.substr(1, text.size() - 2)
                                                                       : text;
}

Fact loss_fact(const MetricColumns& m) {
  const double last = m.loss.back();
  return {"Last loss", is_shown(last) ? fmt::format("{:.4f}", last) : "not finite",
          fmt::format("step {:.0f}", m.step.back())};
}

Fact held_out_fact(const MetricColumns& m) {
  size_t best = m.size();
  for (size_t i = 0; i < m.size(); ++i)
    if (is_shown(m.val_loss[i]) && (best == m.size() || m.val_loss[i] < m.val_loss[best])) best = i;
  if (best == m.size()) return {"Best held-out loss", "", "no evaluation"};
  return {"Best held-out loss", fmt::format("{:.4f}", m.val_loss[best]),
          fmt::format("after step {:.0f}", m.step[best])};
}

Fact memory_fact(const RunData& run) {
  double largest = 0;
  const auto look_at = [&](const MemoryByPurpose& rank) {
    double sum = 0;
    for (const auto& [purpose, bytes] : rank) sum += static_cast<double>(bytes);
    largest = std::max(largest, sum);
  };
  if (run.info)
    for (const MemoryByPurpose& rank : run.info->memory) look_at(rank);
  if (largest == 0) look_at(run.metrics.memory);
  if (!(largest > 0 && largest < 9e18)) return {"Memory", "", ""};
  return {"Memory", format_bytes(static_cast<int64_t>(largest)), "the fullest rank"};
}

std::vector<Fact> facts_of(const RunData& run) {
  const MetricColumns& m = run.metrics;
  std::vector<Fact> facts;
  if (run.info) {
    facts.push_back({"Model", run.info->model,
                     run.info->ranks > 1 ? fmt::format("{} ranks", run.info->ranks) : "1 rank"});
    facts.push_back(
        {"Parameters", format_count(static_cast<double>(run.info->parameters)),
         fmt::format("{} active", format_count(static_cast<double>(run.info->active_parameters)))});
    facts.push_back({"Layout", layout_text(run),
                     run.info->e > 1 ? fmt::format("e {}, {}", run.info->e, run.info->dispatch)
                                     : "all experts on each rank"});
  } else {
    facts.push_back({"Model", unquoted(run.setting("model.name")), ""});
    facts.push_back({"Parameters", "", ""});
    facts.push_back({"Layout", layout_text(run), ""});
  }
  if (m.size() == 0) {
    facts.push_back({"Steps", "0", "nothing logged yet"});
    return facts;
  }
  const std::string wanted = run.setting("train.steps");
  const auto skipped = std::count(m.skipped.begin(), m.skipped.end(), 1);
  facts.push_back(
      {"Steps", fmt::format("{:.0f}", m.step.back() + 1),
       (wanted.empty() ? "" : "of " + wanted) + (skipped > 0 ? fmt::format(", {} skipped", skipped) : "")});
  double tokens = 0;
  for (size_t i = 0; i < m.size(); ++i)
    if (is_shown(m.tokens_per_s[i] * m.seconds[i])) tokens += m.tokens_per_s[i] * m.seconds[i];
  facts.push_back({"Tokens", format_count(tokens), ""});
  facts.push_back({"Training time", format_seconds(std::clamp(sum_of(m.seconds), 0.0, kLongest)),
                   run.setting("run.device").empty() ? "" : "on " + unquoted(run.setting("run.device"))});
  facts.push_back(loss_fact(m));
  facts.push_back(held_out_fact(m));
  const auto rate = median_of(m.tokens_per_s), step_time = median_of(m.seconds), mfu = median_of(m.mfu);
  facts.push_back(
      {"Tokens/s", rate ? format_count(*rate) : "",
       step_time ? "median; a step " + format_seconds(std::clamp(*step_time, 0.0, kLongest)) : ""});
  facts.push_back({"MFU", mfu ? fmt::format("{:.1f} %", 100 * *mfu) : "", mfu ? "median" : "no peak known"});
  facts.push_back(memory_fact(run));
  return facts;
}

std::string value_html(const Fact& fact) {
  return fact.value.empty() ? "–" : html_text(fact.value);
}

std::string cards(const RunData& run) {
  std::string html = R"(<div class="cards">)";
  for (const Fact& fact : facts_of(run))
    html += fmt::format("<div><span>{}</span><b>{}</b><small>{}</small></div>", fact.name, value_html(fact),
                        html_text(fact.more));
  return html + "</div>";
}

std::string table(const std::vector<RunData>& runs) {
  std::vector<std::vector<Fact>> all;
  all.reserve(runs.size());
  for (const RunData& run : runs) all.push_back(facts_of(run));
  const auto& widest = *std::max_element(all.begin(), all.end(),
                                         [](const auto& a, const auto& b) { return a.size() < b.size(); });
  std::string html = R"(<div class="scroll"><table class="numbers overview"><thead><tr><th>Run</th>)";
  for (const Fact& fact : widest) html += fmt::format("<th>{}</th>", fact.name);
  html += "</tr></thead><tbody>";
  for (size_t r = 0; r < runs.size(); ++r) {
    html += fmt::format(R"(<tr><td><i class="swatch {}"></i>{}</td>)", run_class(r), html_text(runs[r].name));
    for (size_t i = 0; i < widest.size(); ++i) {
      if (i < all[r].size())
        html += fmt::format("<td>{}<small>{}</small></td>", value_html(all[r][i]), html_text(all[r][i].more));
      else
        html += "<td>–</td>";
    }
    html += "</tr>";
  }
  return html + "</tbody></table></div>";
}

}  // namespace

std::string overview_html(const std::vector<RunData>& runs) {
  std::string html = runs.size() == 1 ? cards(runs.front()) : table(runs);
  for (const RunData& run : runs)
    for (const std::string& note : run.notes)
      html += fmt::format(R"(<p class="warning">{}: {}</p>)", html_text(run.name), html_text(note));
  return html;
}

}  // namespace moesaic
