#include "checkpoint/folder.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "base/file.h"
#include "checkpoint/manifest.h"

namespace moesaic {
namespace {

constexpr std::string_view kPrefix = "step_";
constexpr std::string_view kUnfinished = ".tmp";

std::optional<int64_t> step_of(std::string_view name) {
  int64_t step = 0;
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const auto [end, code] = std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), step);
  if (code != std::errc() || step < 0 || name != checkpoint_name(step)) return std::nullopt;
  return step;
}

std::vector<int64_t> steps_newest_first(const std::string& folder) {
  std::vector<int64_t> steps;
  if (!path_exists(folder)) return steps;
  for (const std::string& name : list_folder(folder)) {
    if (const auto step = step_of(name)) steps.push_back(*step);
  }
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

/// Why the checkpoint is not whole; empty if it is.
std::string damage_of(const std::string& path, int64_t step) {
  try {
    const Manifest manifest = read_manifest(path);
    if (manifest.step != step) return fmt::format("{} holds step {}: it was renamed", path, manifest.step);
    return "";
  } catch (const IoError& error) {
    return error.what();
  }
}

}  // namespace

std::string checkpoint_name(int64_t step) {
  return fmt::format("{}{:08}", kPrefix, step);
}

LatestCheckpoint find_latest_checkpoint(const std::string& folder, int64_t before) {
  LatestCheckpoint latest;
  for (const int64_t step : steps_newest_first(folder)) {
    if (step >= before) continue;
    const std::string path = folder + "/" + checkpoint_name(step);
    const std::string damage = damage_of(path, step);
    if (damage.empty()) {
      latest.path = path;
      latest.step = step;
      break;
    }
    latest.damaged.push_back(damage);
  }
  return latest;
}

void prune_checkpoints(const std::string& folder, int64_t keep_last) {
  MOESAIC_CHECK(keep_last >= 1, "{}", keep_last);
  int64_t kept = 0;
  for (const int64_t step : steps_newest_first(folder)) {
    const std::string path = folder + "/" + checkpoint_name(step);
    if (kept < keep_last) {
      if (damage_of(path, step).empty()) ++kept;
      continue;
    }
    // Renamed first, so that a crash in the middle does not leave half a checkpoint under a name that counts.
    const std::string unfinished = path + std::string(kUnfinished);
    remove_tree(unfinished);
    rename_path(path, unfinished);
    remove_tree(unfinished);
  }
}

void remove_unfinished_checkpoints(const std::string& folder) {
  for (const std::string& name : list_folder(folder)) {
    if (name.starts_with(kPrefix) && name.ends_with(kUnfinished))
      remove_tree(fmt::format("{}/{}", folder, name));
  }
}

}  // namespace moesaic
