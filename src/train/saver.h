#pragma once
// Saving while training goes on.
//
//   boundary of step 100   every rank copies its shards to host memory (Snapshot), and goes on training
//   meanwhile              in a thread of each rank: rank 0 begins the checkpoint, then all write their shards, then
//                          rank 0 publishes it and removes old ones
//   later boundaries       the ranks tell each other how far they are, and enter the next of these phases together once all
//                          of them are through with the last; nobody waits
//
// A save that is waited for (the last one, or train.save_async = false) takes the same way, with waits in between.
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/folder.h"
#include "checkpoint/writer.h"
#include "train/checkpointing.h"
#include "train/snapshot.h"

namespace moesaic {

/// All methods but the constructor are called by every rank at the same step boundaries. When any rank's part of a save fails,
/// every rank throws the same IoError, once all ranks have ended their parts; older checkpoints are as they were.
class Saver {
 public:
  struct Saved {
    int64_t step;
    std::string path;
    double held;  // seconds that this rank spent in the calls below for it, instead of training
  };

  /// Saves go into `folder` ("runs/x/checkpoints"); the newest `keep_last` stay. `timeout`: seconds that finish() waits for a
  /// phase. Takes the snapshot's memory. `session` outlives it and trains.
  Saver(Session& session, std::string folder, int64_t keep_last, double timeout);
  /// Waits for this rank's part of an unfinished save, which stays unpublished.
  ~Saver() = default;

  int64_t snapshot_bytes() const { return snapshot_.bytes(); }
  /// A save is under way.
  bool busy() const { return phase_ != Phase::none; }

  /// Copies this rank's part of the state after `state.step` steps and begins to save it. Requires !busy().
  void start(const RunState& state);
  /// Lets the save go on without waiting. Returns what was published, once. Nothing happens when !busy().
  std::optional<Saved> advance();
  /// Waits until the save under way is published. The ranks go on asking each other meanwhile, so that the job's limit on ranks
  /// that stand still is not met; a phase that lasts longer than `timeout` is an IoError that names the ranks at work.
  std::optional<Saved> finish();

 private:
  enum class Phase { none, begin, write, publish };
  class Held;  // adds its lifetime to held_
  std::optional<Saved> look();
  /// Enters a phase; `work` is this rank's part of it, if it has one, and runs in a thread.
  void enter(Phase phase, bool mine, std::function<std::string()> work);
  void enter_publish(std::vector<std::string> infos);
  /// Looks whether this rank's part has ended.
  void end_part();
  [[noreturn]] void give_up(const std::string& why);

  Session& session_;
  std::string folder_;
  int64_t keep_last_;
  double timeout_;
  Snapshot snapshot_;
  KnownManifests known_;  // of rank 0, for its thread
  // Of the save under way.
  Phase phase_ = Phase::none;
  std::optional<CheckpointWriter> writer_;
  RunState state_;
  double held_ = 0;
  std::string told_;  // to the others, of this rank's part of the phase
  std::string busy_;  // the ranks that had not ended theirs when last asked: "1, 3"
  std::string info_;  // what its part returned: after writing, its ShardInfo
  // Last: its end waits for the thread, which uses the rest.
  std::future<std::string> part_;
};

}  // namespace moesaic
