#pragma once
// The control channel of a job whose ranks are processes: every rank has a TCP connection to rank 0. A thread of its own
// listens to it, so that a rank answers, and is heard of, whatever its work does.
//
// Who notices what: rank 0 sees a connection that ends (at once), a rank that is silent or stands still while others wait (in
// time); the others see rank 0 go or be silent. The first reason wins, reaches every rank, and is thrown there by the next
// call that waits; its origin is the one rank that should tell its user.
#include <memory>
#include <thread>

#include "comm/control.h"
#include "launch/control_state.h"

namespace moesaic {

struct JoinOptions {
  int64_t rank = 0, size = 1;
  std::string address;  // of rank 0
  int port = 0;
  uint64_t config = 0, job = 0;  // fingerprints that must be the same on all ranks
  double timeout =
      10;  // seconds that a rank may stand still, unless it sets a limit of its own, or be silent
  double join_timeout = 300;  // the same, to start
  /// When the work does not end within a second after the job was aborted, the process ends (exit code 3).
  bool leave_when_stuck = false;
};

class TcpControl : public Control {
 public:
  /// Rank 0 begins to listen, any other rank to look for it. Throws CommError when the port or the address cannot be used.
  explicit TcpControl(const JoinOptions& options);
  ~TcpControl() override;

  /// Waits until all ranks are there. Throws CommError when they are not in time, or rank 0 refuses this one.
  void join() { state_.wait_for_welcome(); }
  /// This rank's work is over; waits until everybody's is. Throws CommError when the job was aborted.
  void finish();
  /// The work has thrown, and abort() was called: from now on it is not stuck.
  void set_leaving() { state_.set_leaving(); }

  int64_t rank() const override { return options_.rank; }
  int64_t size() const override { return options_.size; }
  void set_step(int64_t step) override { state_.set_step(step); }
  void set_operation(const std::string& operation) override { state_.set_operation(operation); }
  void set_time_limit(double seconds) override { state_.set_time_limit(seconds); }
  void set_waiting(const std::string& waits_for) override { state_.set_waiting(waits_for); }
  void abort(const std::string& message) override;
  void check() const override { state_.check(); }

  /// What this rank's thread does again and again while it waits in an agreement or for the end; may throw.
  void set_while_waiting(std::function<void()> work) { state_.set_while_waiting(std::move(work)); }

  /// "rank 2 (step 5, last operation: all_gather tokens)": of another rank, as rank 0 has last heard of it.
  std::string describe(int64_t rank) override;
  /// After an abort: the rank that tells the user, and what.
  int64_t origin() const { return state_.origin(); }
  std::string message() const { return state_.message(); }
  /// After join(): the host of each rank as this one reaches it, and a number that only this job's ranks know.
  std::vector<std::string> hosts() const;
  uint64_t token() const { return state_.token(); }

 protected:
  std::vector<std::string> all_gather_at(const std::string& where, const std::string& mine) override;

 private:
  JoinOptions options_;
  ControlState state_;
  std::string rank_0_host_ = "127.0.0.1";  // as this rank reaches it
  int64_t round_ = 0, question_ = 0;
  std::thread listener_;
};

}  // namespace moesaic
