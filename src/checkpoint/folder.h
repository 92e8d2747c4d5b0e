#pragma once
// The folder that holds a run's checkpoints: "step_00000100" and so on. A name ending in ".tmp" is a
// checkpoint being written or removed, or what a crash left of one; it is never read. "step_00000100.old" is
// one that is being replaced; it counts where "step_00000100" is not whole.
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"

namespace moesaic {

/// "step_00000100"; more digits past 99,999,999.
std::string checkpoint_name(int64_t step);

struct LatestCheckpoint {
  std::string path;                  // empty if there is none
  int64_t step = -1;                 // of path
  std::vector<std::string> damaged;  // of the newer ones passed over: one sentence each, naming the file
};

/// The whole checkpoint with the highest step below `before`: its manifest is sound and its files have the right
/// sizes (contents are checked by CheckpointReader). A folder that is missing holds none.
LatestCheckpoint find_latest_checkpoint(const std::string& folder,
                                        int64_t before = std::numeric_limits<int64_t>::max());

/// Manifests that were read or written before, by the checkpoint's path: reading a large one again takes long. Pieces are not
/// needed, and may be left out.
using KnownManifests = std::map<std::string, Manifest>;

/// Removes all checkpoints older than the newest keep_last (>= 1) whole ones. Newer damaged ones stay for
/// inspection and do not count. Of those in `known`, only the files' sizes are looked at; it then holds those that are
/// kept, without pieces.
/// Call it from one rank, after publishing.
void prune_checkpoints(const std::string& folder, int64_t keep_last, KnownManifests& known);

/// Tidies up what a crash left: what is unfinished is removed, and a checkpoint whose replacement did not come
/// gets its name back. Call it from one rank, while no checkpoint is being written.
void clean_checkpoints(const std::string& folder);
/// Moves what `path` holds aside, to where it counts no longer, and removes it. Safe to be interrupted.
void remove_checkpoint(const std::string& path);

/// What a checkpoint is called while it is written or removed, and while another takes its place.
inline std::string unfinished_name(const std::string& path) {
  return path + ".tmp";
}
inline std::string replaced_name(const std::string& path) {
  return path + ".old";
}

}  // namespace moesaic
