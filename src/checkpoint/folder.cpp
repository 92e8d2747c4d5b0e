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
constexpr std::string_view kUnfinished = ".tmp", kReplaced = ".old";

std::optional<int64_t> step_of(std::string_view name) {
  int64_t step = 0;
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const auto [end, code] = std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), step);
  if (code != std::errc() || step < 0 || name != checkpoint_name(step)) return std::nullopt;
  return step;
}

struct Candidate {
  int64_t step;
  bool replaced;  // "step_00000100.old"
  std::string path;
};

/// Newest first, and of one step the replaced one last.
std::vector<Candidate> candidates_in(const std::string& folder) {
  std::vector<Candidate> all;
  if (!path_exists(folder)) return all;
  for (const std::string& name : list_folder(folder)) {
    const bool replaced = name.ends_with(kReplaced);
    const auto step =
        step_of(std::string_view(name).substr(0, name.size() - (replaced ? kReplaced.size() : 0)));
    if (step) all.push_back({*step, replaced, fmt::format("{}/{}", folder, name)});
  }
  std::sort(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) {
    return a.step != b.step ? a.step > b.step : a.replaced < b.replaced;
  });
  return all;
}

/// IoError if the checkpoint is not whole.
Manifest manifest_of(const std::string& path, int64_t step) {
  Manifest manifest = read_manifest(path);
  require<IoError>(manifest.step == step, "{} holds step {}: it was renamed", path, manifest.step);
  return manifest;
}

/// Why the checkpoint is not whole; empty if it is.
std::string damage_of(const std::string& path, int64_t step) {
  try {
    manifest_of(path, step);
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
  for (const auto& [step, replaced, path] : candidates_in(folder)) {
    if (step >= before) continue;
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

void prune_checkpoints(const std::string& folder, int64_t keep_last, KnownManifests& known) {
  MOESAIC_CHECK(keep_last >= 1, "{}", keep_last);
  KnownManifests kept;
  for (const auto& [step, replaced, path] : candidates_in(folder)) {
    if (replaced) continue;  // publishing and cleaning see to those
    if (std::ssize(kept) >= keep_last) {
      remove_checkpoint(path);
      continue;
    }
    try {
      const auto found = known.find(path);
      const bool is_known = found != known.end() && path_exists(path + "/" + kManifestName);
      Manifest manifest = is_known ? std::move(found->second) : manifest_of(path, step);
      if (is_known) check_files(manifest, path);
      manifest.pieces.clear();
      manifest.pieces.shrink_to_fit();
      kept.emplace(path, std::move(manifest));
    } catch (const IoError&) {  // stays for inspection
    }
  }
  known = std::move(kept);
}

void remove_checkpoint(const std::string& path) {
  // Renamed first, so that a crash in the middle does not leave half a checkpoint under a name that counts.
  const std::string unfinished = unfinished_name(path);
  remove_tree(unfinished);
  rename_path(path, unfinished);
  remove_tree(unfinished);
}

void clean_checkpoints(const std::string& folder) {
  for (const auto& [step, replaced, path] : candidates_in(folder)) {
    if (!replaced) continue;
    const std::string newer = folder + "/" + checkpoint_name(step);
    const bool exists = path_exists(newer);
    if (exists && (damage_of(newer, step).empty() || !damage_of(path, step).empty())) {
      remove_checkpoint(path);
    } else {
      if (exists) remove_checkpoint(newer);
      rename_path(path, newer);
    }
  }
  for (const std::string& name : list_folder(folder)) {
    if (name.starts_with(kPrefix) && name.ends_with(kUnfinished))
      remove_tree(fmt::format("{}/{}", folder, name));
  }
}

}  // namespace moesaic
