#include "report/page/run_data.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "report/page/run_file.h"

namespace moesaic {
namespace {

constexpr int64_t kMaxConfig = int64_t{1} << 20;
constexpr size_t kMaxLine = size_t{1} << 20;
constexpr int kMaxDepth = 8;

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  return begin == std::string_view::npos ? ""
                                         : text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin);
}

/// The N of "step_N.json".
std::optional<int64_t> step_of_trace(std::string_view name) {
  if (!name.starts_with("step_") || !name.ends_with(".json")) return std::nullopt;
  name = name.substr(5, name.size() - 10);
  int64_t step = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  return error == std::errc() && end == name.data() + name.size() ? std::optional(step) : std::nullopt;
}

void read_timeline(RunData& run, std::optional<int64_t> wanted) {
  const std::string folder = run.folder + "/traces";
  std::vector<int64_t> steps;
  if (path_exists(folder))
    for (const std::string& name : list_folder(folder))
      if (const auto step = step_of_trace(name)) steps.push_back(*step);
  if (wanted && std::find(steps.begin(), steps.end(), *wanted) == steps.end()) {
    run.notes.push_back(fmt::format("there is no trace of step {}", *wanted));
    return;
  }
  if (steps.empty()) return;
  run.trace_step = wanted ? *wanted : *std::max_element(steps.begin(), steps.end());
  run.timeline = read_trace(fmt::format("{}/step_{}.json", folder, run.trace_step));
  if (run.timeline->ranks.empty()) run.timeline.reset();
}

std::string last_part(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  const size_t slash = path.rfind('/');
  return slash == std::string::npos || path.size() == 1 ? path : path.substr(slash + 1);
}

void note_damage(RunData& run, const char* file, int64_t lines) {
  if (lines > 0)
    run.notes.push_back(fmt::format("{} line{} of {} could not be read and {} left out", lines,
                                    lines == 1 ? "" : "s", file, lines == 1 ? "is" : "are"));
}

}  // namespace

std::string RunData::setting(const std::string& key) const {
  for (const auto& [known, value] : config)
    if (known == key) return value;
  return "";
}

std::vector<std::pair<std::string, std::string>> flat_toml(const std::string& text) {
  std::vector<std::pair<std::string, std::string>> values;
  std::string section;
  std::string_view rest = text;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = trimmed(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const size_t equals = line.find('=');
    if (line.empty() || line.front() == '#') continue;
    if (line.front() == '[' && line.back() == ']') {
      section = line.substr(1, line.size() - 2);
    } else if (equals != std::string_view::npos) {
      std::string key = section.empty() ? "" : section + ".";
      key += trimmed(line.substr(0, equals));
      values.emplace_back(std::move(key), trimmed(line.substr(equals + 1)));
    }
  }
  return values;
}

std::vector<LoggedEvent> parse_events(std::string_view text, int64_t& damaged_lines) {
  std::vector<LoggedEvent> events;
  const auto bounded = [](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
    require<IoError>(depth <= kMaxDepth, "nested too deep");
    return true;
  };
  for (size_t end = 0; (end = text.find('\n')) != std::string_view::npos; text.remove_prefix(end + 1)) {
    try {
      require<IoError>(end <= kMaxLine, "too long");
      const auto line =
          nlohmann::json::parse(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(end), bounded);
      require<IoError>(line.at("step").is_number_integer(), "not a step");
      LoggedEvent event{line.at("step").get<int64_t>(), line.at("event").get<std::string>(), 0,
                        line.value("message", std::string())};
      if (const auto time = line.find("time"); time != line.end() && time->is_number())
        event.time = time->get<double>();
      events.push_back(std::move(event));
    } catch (const std::exception&) {
      ++damaged_lines;
    }
  }
  return events;
}

RunData read_run(const std::string& folder, std::optional<int64_t> trace_step) {
  RunData run;
  run.folder = folder;
  run.name = last_part(folder);
  const std::string metrics = folder + "/metrics.jsonl", config = folder + "/config.toml";
  require<IoError>(path_exists(metrics) || path_exists(config),
                   "{} is not the folder of a run: it holds neither metrics.jsonl nor config.toml", folder);
  // Each file by itself: one that is damaged takes nothing else with it.
  const auto attempt = [&](const auto& work) {
    try {
      work();
    } catch (const IoError& error) {
      run.notes.emplace_back(error.what());
    }
  };
  attempt([&] {
    run.metrics = read_metrics(metrics);
    note_damage(run, "metrics.jsonl", run.metrics.damaged_lines);
  });
  attempt([&] {
    if (!path_exists(folder + "/events.jsonl")) return;
    int64_t damaged = 0;
    run.events = parse_events(read_run_file(folder + "/events.jsonl"), damaged);
    note_damage(run, "events.jsonl", damaged);
    if (run.events.size() <= RunData::kMaxEvents) return;
    const auto surplus = static_cast<std::ptrdiff_t>(run.events.size() - RunData::kMaxEvents);
    run.events_left_out = surplus;
    run.events.erase(run.events.begin(), run.events.begin() + surplus);
  });
  attempt([&] {
    if (!path_exists(config)) return;
    run.config_text = read_file(config, kMaxConfig);
    run.config = flat_toml(run.config_text);
  });
  attempt([&] {
    if (path_exists(folder + "/run.json")) run.info = read_run_info(folder + "/run.json");
  });
  attempt([&] { read_timeline(run, trace_step); });
  return run;
}

}  // namespace moesaic
