#pragma once
// What a rank that is a process shares between its two threads: the one that works, and the one that listens to the control
// channel. All of it may be called by either.
#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "comm/progress_watch.h"
#include "launch/control_frame.h"

namespace moesaic {

/// Seconds, by a clock that only goes forward.
double steady_seconds();

class ControlState {
 public:
  /// `limit`: seconds that the rank may stand still while others wait, until it says otherwise.
  ControlState(int64_t rank, double limit);
  ~ControlState();

  // The working thread.
  int64_t rank() const { return rank_; }
  void set_step(int64_t step);
  void set_operation(const std::string& operation);
  void set_time_limit(double seconds);
  void set_waiting(const std::string& waits_for);
  /// What the working thread does again and again while it waits below.
  void set_while_waiting(std::function<void()> work) { while_waiting_ = std::move(work); }
  /// Gives a frame to the listening thread.
  void post(Frame frame);
  /// Waits for the welcome; throws CommError when the job was aborted.
  void wait_for_welcome();
  /// Waits for everybody's texts of a round; the same.
  std::vector<std::string> wait_for_texts(int64_t round);
  /// The answer to a question; empty after `seconds`.
  std::string wait_for_answer(int64_t question, double seconds);
  void wait_for_all_finished();
  /// False after `seconds` without an abort.
  bool wait_for_abort(double seconds);
  /// Throws CommError with the abort's message, if there was one.
  void check() const;
  bool aborted() const { return aborted_.load(std::memory_order_acquire); }
  int64_t origin() const;  // the rank that tells its user why the job was aborted
  std::string message() const;
  std::vector<std::string> hosts() const;
  uint64_t token() const;
  /// The work is over or has thrown: nothing is stuck.
  void set_leaving() { leaving_ = true; }
  void stop();

  // The listening thread.
  RankProgress progress() const;
  int wake_descriptor() const { return wake_; }
  /// What was posted since the last time.
  std::vector<Frame> take_posted();
  /// A frame of rank 0 to this rank. Throws CommError when it is none that a rank gets.
  void deliver(const Frame& frame);
  /// The job ends for a reason that this rank has found; the first one wins.
  void abort(int64_t origin, const std::string& message);
  bool stopping() const { return stopping_; }
  /// Whether this rank is still at work `seconds` after the job was aborted.
  bool stuck(double seconds) const;

 private:
  void wake();
  /// Blocks until ready() or an abort, upon which it throws; meanwhile the rank waits for `whom`.
  template <class Ready>
  void wait(const char* whom, Ready ready);

  const int64_t rank_;
  int wake_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  RankProgress progress_;
  std::vector<Frame> posted_;
  bool welcomed_ = false, all_finished_ = false;
  std::vector<std::string> hosts_, texts_;
  uint64_t token_ = 0;
  int64_t round_ = -1, answered_ = -1, origin_ = -1;
  std::string answer_, message_;
  std::function<void()> while_waiting_;
  double aborted_at_ = 0;
  std::atomic<bool> aborted_{false}, stopping_{false}, leaving_{false};
};

}  // namespace moesaic
