#pragma once
// Ranks that are threads of a test, and talk through sockets of this machine.
#include <memory>

#include "comm/tcp/tcp_mesh.h"
#include "comm/threads/thread_control.h"
#include "support/thread_ranks.h"

namespace moesaic::test {

/// A rank's sockets, and its end of the group of all.
class TcpRank {
 public:
  TcpRank(ThreadWorld& world, int64_t rank)
      : control_(world, rank),
        mesh_(std::make_shared<tcp::TcpMesh>(
            control_, std::vector<std::string>(static_cast<size_t>(world.size()), "127.0.0.1"), 42)) {}
  std::unique_ptr<Communicator> everyone() {
    std::vector<int64_t> ranks(static_cast<size_t>(control_.size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    return group(ranks);
  }
  std::unique_ptr<Communicator> group(const std::vector<int64_t>& ranks) {
    return mesh_->communicator(ranks);
  }
  /// No rank's connections end before all ranks are here.
  void leave() { control_.barrier(); }

 private:
  ThreadControl control_;
  std::shared_ptr<tcp::TcpMesh> mesh_;
};

}  // namespace moesaic::test
