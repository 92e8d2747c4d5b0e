#pragma once
// Saving, by any number of ranks, so that the checkpoint is whole or not there:
//
//   rank 0     CheckpointWriter(folder, step).begin();          then all ranks wait for rank 0
//   each rank  info = CheckpointWriter(folder, step).write_shard(rank, pieces);
//   rank 0     gathers the infos                                 (as text: encode_shard_info, manifest.h)
//   rank 0     CheckpointWriter(folder, step).publish(infos, state);
//
// Until publish() has returned, nothing in the folder counts as this checkpoint, whichever rank dies when.
// All ranks must see one file system.
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "checkpoint/manifest.h"
#include "checkpoint/piece.h"

namespace moesaic {

/// Names of one checkpoint; holds nothing open between calls, so ranks may have one each. All calls throw
/// IoError.
class CheckpointWriter {
 public:
  CheckpointWriter(std::string folder, int64_t step);

  /// Creates the folder and an empty temporary one in it; tidies up what crashes left there (clean_checkpoints).
  void begin() const;
  /// Writes this rank's pieces, possibly none, as "rank_00003.safetensors" and brings them to the disk. Data
  /// is read during the call only. Two pieces of one tensor may not begin at the same element.
  ShardInfo write_shard(int64_t rank, std::span<const PieceToSave> pieces) const;
  /// The same without holding all of it: bytes_of(i) is asked once for the bytes of pieces[i], which are used before
  /// the next call.
  ShardInfo write_shard(int64_t rank, std::span<const Piece> pieces,
                        const std::function<std::span<const std::byte>(size_t)>& bytes_of) const;
  /// Checks that all shards are there and cover each tensor without contradiction, writes the manifest, and
  /// gives the checkpoint its name; an older one of the same step is replaced. state: an object, kept as it
  /// is. Returns what the manifest holds.
  Manifest publish(std::span<const ShardInfo> shards, const nlohmann::json& state) const;

  /// Where the checkpoint is after publish().
  const std::string& path() const { return path_; }

 private:
  std::string folder_, path_, unfinished_;
  int64_t step_;
};

}  // namespace moesaic
