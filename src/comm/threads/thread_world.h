#pragma once
// What the thread ranks of one process share: abort, status, host-side agreement, and the meeting places of
// their groups.
#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/control.h"
#include "comm/meeting/mover.h"
#include "comm/progress_watch.h"

namespace moesaic {

class ThreadWorld {
 public:
  /// `timeout`: seconds that a rank may stand still while another waits, unless it sets a limit of its own.
  ThreadWorld(int64_t size, double timeout);
  ~ThreadWorld();

  int64_t size() const { return static_cast<int64_t>(progress_.size()); }
  /// A rank's end of all this.
  Control& control(int64_t rank) { return *controls_[static_cast<size_t>(rank)]; }

  void abort(const std::string& message);
  bool aborted() const { return aborted_.load(std::memory_order_acquire); }
  /// Throws CommError with the abort's message, if there was one.
  void check() const;
  std::string message() const;

  void set_step(int64_t rank, int64_t step);
  void set_operation(int64_t rank, const std::string& operation);
  void set_time_limit(int64_t rank, double seconds);
  /// See Control. Looks who is overdue, and ends the job if somebody is.
  void set_waiting(int64_t rank, const std::string& waits_for);
  /// The same for one who is no rank.
  void watch();
  /// "rank 2 (step 5, last operation: all_gather tokens)"
  std::string describe(int64_t rank) const;

  /// Blocks until all ranks have called it, then returns everybody's text. Different `where` end the job.
  std::vector<std::string> all_gather(int64_t rank, const std::string& mine, const std::string& where = "");

  /// This rank's end of the group of these global ranks (in order; must contain `rank`). Every member calls
  /// it; the same list always means the same group, and a second call on one rank gives a second, independent
  /// communicator.
  /// `mover`: how this rank moves data (absent: in host memory).
  std::unique_ptr<Communicator> communicator(const std::vector<int64_t>& ranks, int64_t rank,
                                             std::unique_ptr<Mover> mover = nullptr);

 private:
  /// Under the lock: what a rank does has changed.
  struct Group;
  template <class F>
  void change(int64_t rank, F&& f);
  void abort_locked(const std::string& message);
  void watch_locked();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<RankProgress> progress_;  // [rank]
  ProgressWatch watch_;
  std::atomic<bool> aborted_{false};
  std::string message_;
  // Host-side all_gather: round r collects into texts_; the last to come publishes result_ and starts round r
  // + 1.
  uint64_t round_ = 0;
  std::vector<std::string> texts_, where_;
  std::vector<bool> here_;
  std::vector<std::string> result_;
  std::vector<std::unique_ptr<Control>> controls_;  // [rank]
  std::map<std::vector<int64_t>, std::vector<std::shared_ptr<Group>>> groups_;
  std::map<std::pair<std::vector<int64_t>, int64_t>, size_t>
      taken_;  // (group, rank) -> communicators made so far
};

}  // namespace moesaic
