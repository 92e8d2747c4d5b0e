#pragma once
// What can be refused before any rank starts: values, layout, data and the run's folder.
#include "config/config.h"
#include "data/loader.h"

namespace moesaic {

/// Throws ConfigError for values or a layout that cannot run, or a device that holds no data.
void check_runnable(const Config& config);

/// Opens the run's data. Throws ConfigError or IoError, also when what the run needs is not there: training text, and
/// held-out text when `needs_valid`.
Loader open_data(const Config& config, bool needs_valid);

/// Throws ConfigError when the run's folder holds checkpoints newer than where the run starts: they would be taken for its
/// own, and its own be removed as old.
void check_run_folder(const RunConfig& run);

}  // namespace moesaic
