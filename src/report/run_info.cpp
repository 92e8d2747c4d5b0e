#include "report/run_info.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"

namespace moesaic {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kMaxBytes = int64_t{64} << 20;  // far above what 100,000 ranks need
constexpr int kMaxDepth = 8;

int64_t whole(const ordered_json& value) {
  require<IoError>(value.is_number_integer(), "a whole number should stand where {} does", value.dump());
  return value.get<int64_t>();
}

void take(const ordered_json& object, const char* name, int64_t& value) {
  if (object.contains(name)) value = whole(object[name]);
}
template <class T>
void take(const ordered_json& object, const char* name, T& value) {
  if (object.contains(name)) value = object[name].get<T>();
}

}  // namespace

void write_run_info(const std::string& path, const RunInfo& info) {
  ordered_json all;
  all["model"] = info.model;
  all["parameters"] = info.parameters;
  all["active_parameters"] = info.active_parameters;
  all["flops_per_token"] = info.flops_per_token;
  if (info.peak_flops) all["peak_flops"] = *info.peak_flops;
  all["tokens_per_step"] = info.tokens_per_step;
  all["ranks"] = info.ranks;
  all["e"] = info.e;
  all["dispatch"] = info.dispatch;
  std::string memory;  // a line per rank, which a person can read
  for (const MemoryByPurpose& rank : info.memory) {
    ordered_json by_purpose = ordered_json::object();
    for (const auto& [purpose, bytes] : rank) by_purpose[purpose] = bytes;
    memory += (memory.empty() ? "\n" : ",\n") + by_purpose.dump();
  }
  std::string text = all.dump(1, ' ', false, ordered_json::error_handler_t::replace);
  text.resize(text.size() - 2);  // the newline and brace at its end
  AtomicFile file(path);
  file.write(text + ",\n \"memory_bytes\": [" + memory + "]\n}\n");
  file.commit();
}

RunInfo read_run_info(const std::string& path) {
  const std::string text = read_file(path, kMaxBytes);
  RunInfo info;
  try {
    const auto bounded = [](int depth, ordered_json::parse_event_t, ordered_json&) {
      require<IoError>(depth <= kMaxDepth, "JSON nested deeper than {} levels", kMaxDepth);
      return true;
    };
    const ordered_json all = ordered_json::parse(text, bounded);
    take(all, "model", info.model);
    take(all, "parameters", info.parameters);
    take(all, "active_parameters", info.active_parameters);
    take(all, "flops_per_token", info.flops_per_token);
    if (all.contains("peak_flops")) info.peak_flops = all["peak_flops"].get<double>();
    take(all, "tokens_per_step", info.tokens_per_step);
    take(all, "ranks", info.ranks);
    take(all, "e", info.e);
    take(all, "dispatch", info.dispatch);
    if (!all.contains("memory_bytes")) return info;
    require<IoError>(all["memory_bytes"].is_array(), "memory_bytes should be an array over the ranks");
    for (const ordered_json& rank : all["memory_bytes"]) {
      MemoryByPurpose& sums = info.memory.emplace_back();
      for (const auto& [purpose, bytes] : rank.items()) sums.emplace_back(purpose, whole(bytes));
    }
  } catch (const std::exception& error) {
    fail<IoError>("{} is damaged or not a run's: {}", path, error.what());
  }
  return info;
}

}  // namespace moesaic
