#pragma once
// Ranks that are threads of a test, and talk through sockets of this machine.
#include <memory>

#include "comm/tcp/tcp_mesh.h"
#include "support/thread_ranks.h"

namespace moesaic::test {

/// The control of one thread rank.
class WorldControl : public Control {
 public:
  WorldControl(ThreadWorld& world, int64_t rank) : world_(world), rank_(rank) {}
  int64_t rank() const override { return rank_; }
  int64_t size() const override { return world_.size(); }
  std::vector<std::string> all_gather(const std::string& mine) override {
    return world_.all_gather(rank_, mine);
  }
  void set_step(int64_t step) override { world_.set_step(rank_, step); }
  void set_operation(const std::string& operation) override { world_.set_operation(rank_, operation); }
  void abort(const std::string& message) override { world_.abort(message); }
  void check() const override { world_.check(); }

 private:
  ThreadWorld& world_;
  int64_t rank_;
};

/// A rank's sockets, and its end of the group of all.
class TcpRank {
 public:
  TcpRank(ThreadWorld& world, int64_t rank)
      : control_(world, rank),
        mesh_(std::make_shared<tcp::TcpMesh>(
            tcp::Job{.control = control_,
                     .describe = [&world](int64_t r) { return world.describe(r); },
                     .timeout = world.timeout(),
                     .hosts = std::vector<std::string>(static_cast<size_t>(world.size()), "127.0.0.1"),
                     .token = 42})) {}
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
  WorldControl control_;
  std::shared_ptr<tcp::TcpMesh> mesh_;
};

}  // namespace moesaic::test
