#include "train/run_checks.h"

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/folder.h"
#include "config/data_blend.h"
#include "config/validate.h"
#include "mesh/rules.h"
#include "train/checkpointing.h"
#include "train/run_log.h"

namespace moesaic {
namespace {

void check_exists(const char* key, const std::string& prefix) {
  require<ConfigError>(
      path_exists(prefix + ".idx") && path_exists(prefix + ".bin"),
      "{} = {}: there is no {}.bin with {}.idx here; moesaic data prepare TEXT {} makes them", key, prefix,
      prefix, prefix, prefix);
}

}  // namespace

void check_runnable(const Config& config) {
  validate_values(config);
  validate_layout(config);
  require<ConfigError>(config.run.device != DeviceKind::null,
                       "run.device = null computes nothing: use cpu, or moesaic inspect to look at a run");
}

Loader open_data(const Config& config, bool needs_valid) {
  const DataConfig& data = config.data;
  require<ConfigError>(!data.train.empty(),
                       "data.train is empty: name a token file (moesaic data prepare TEXT PREFIX makes one)");
  for (const BlendPart& part : parse_blend(data.train)) check_exists("data.train", part.path);
  if (!data.valid.empty()) check_exists("data.valid", data.valid);
  Loader loader(data, config.train.seq_len, config.model.vocab, config.train.seed);
  require<ConfigError>(!needs_valid || loader.num_valid_samples() > 0,
                       "nothing is held out to evaluate on: set data.valid, or data.valid_fraction above 0");
  return loader;
}

void check_run_folder(const RunConfig& run) {
  if (!run.init.empty() && run.resume.empty()) find_checkpoint(run.init);
  if (run.resume == "auto") return;
  const LatestCheckpoint newest = find_latest_checkpoint(checkpoint_folder(run));
  if (newest.path.empty()) return;
  require<ConfigError>(!run.resume.empty(),
                       "{} holds an earlier run, saved at step {}: go on with it (--resume), give this run "
                       "another run.name, or remove the folder",
                       run_folder(run), newest.step);
  const int64_t start = CheckpointReader(find_checkpoint(run.resume), Verify::sizes).step();
  require<ConfigError>(newest.step <= start,
                       "{} is newer than step {}, where this run starts: give it another run.name, or remove "
                       "the newer checkpoints",
                       newest.path, start);
}

}  // namespace moesaic
