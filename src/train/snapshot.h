#pragma once
// A copy in host memory of what this rank saves: its shards of weights and optimizer state, and on rank 0 the router biases.
// Taken between two steps; training then goes on while the copy is written.
#include <span>
#include <vector>

#include "checkpoint/piece.h"
#include "train/session.h"

namespace moesaic {

/// Host memory that a snapshot of this rank takes, which is all that it ever takes.
int64_t snapshot_bytes(Session& session);

class Snapshot {
 public:
  /// Takes its memory (pinned where the device is a GPU), which the device owns. `session` outlives it and trains.
  explicit Snapshot(Session& session);

  /// Copies device memory as everything enqueued so far leaves it; waits for the copy. Not while pieces() are being read.
  void take();
  /// The pieces of a checkpoint that this rank writes. Their data is that of the last take(). Any thread may read them.
  std::span<const PieceToSave> pieces() const { return pieces_; }
  int64_t bytes() const { return bytes_; }

 private:
  struct Copy {
    std::byte* host;
    const void* device;
    int64_t bytes;
  };

  Session& session_;
  int64_t bytes_;
  std::vector<Copy> copies_;
  std::vector<PieceToSave> pieces_;
};

}  // namespace moesaic
