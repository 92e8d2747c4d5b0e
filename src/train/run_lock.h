#pragma once
// One job per run folder.
#include <optional>

#include "base/file_lock.h"
#include "comm/control.h"
#include "config/config.h"

namespace moesaic {

/// Holds runs/<name>/lock for the whole job. Rank 0's.
class RunLock {
 public:
  /// Called by every rank, before memory is taken. Throws IoError on every rank when another job works in the run's folder
  /// (naming it), or when the folder or its checkpoints cannot be written.
  RunLock(Control& control, const RunConfig& run);

 private:
  std::optional<FileLock> lock_;
};

}  // namespace moesaic
