#pragma once
// One thread rank's end of its world's agreement.
#include "comm/control.h"
#include "comm/threads/thread_world.h"

namespace moesaic {

/// `world` must outlive it.
class ThreadControl : public Control {
 public:
  ThreadControl(ThreadWorld& world, int64_t rank) : world_(world), rank_(rank) {}
  int64_t rank() const override { return rank_; }
  int64_t size() const override { return world_.size(); }
  void set_step(int64_t step) override { world_.set_step(rank_, step); }
  void set_operation(const std::string& operation) override { world_.set_operation(rank_, operation); }
  void set_time_limit(double seconds) override { world_.set_time_limit(rank_, seconds); }
  void set_waiting(const std::string& waits_for) override { world_.set_waiting(rank_, waits_for); }
  std::string describe(int64_t rank) override { return world_.describe(rank); }
  void abort(const std::string& message) override { world_.abort(message); }
  void check() const override { world_.check(); }

 protected:
  std::vector<std::string> all_gather_at(const std::string& where, const std::string& mine) override {
    return world_.all_gather(rank_, mine, where);
  }

 private:
  ThreadWorld& world_;
  int64_t rank_;
};

}  // namespace moesaic
