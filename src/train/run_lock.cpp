#include "train/run_lock.h"

#include "base/file.h"
#include "train/agreement.h"
#include "train/run_log.h"

namespace moesaic {

RunLock::RunLock(Control& control, const RunConfig& run) {
  control.set_operation("lock the run's folder");
  together(control, [&] {
    if (control.rank() != 0) return;
    make_folders(checkpoint_folder(run));
    lock_.emplace(run_folder(run) + "/lock", this_process());
    const AtomicFile can_be_written(checkpoint_folder(run) + "/probe");  // and leaves nothing
  });
}

}  // namespace moesaic
