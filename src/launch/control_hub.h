#pragma once
// What rank 0 does for all ranks of a job of processes, from the moment that all are there: collects their texts, remembers
// what each was doing, notices who is gone, silent or late, and tells everybody. Pure: frames and times come in, frames go
// out. Used by one thread.
#include <functional>
#include <vector>

#include "comm/progress_watch.h"
#include "launch/control_frame.h"

namespace moesaic {

class ControlHub {
 public:
  /// To one rank (0 is this process), and to all.
  struct Out {
    std::function<void(int64_t rank, const Frame&)> one;
    std::function<void(const Frame&)> all;
  };
  /// `silence`: seconds after which a rank that says nothing ends the job.
  ControlHub(int64_t size, double silence, Out out);

  /// The job begins: from now on every rank has to be heard of.
  void begin(double now);
  void on_frame(int64_t rank, const Frame& frame, double now);
  /// The connection to a rank has ended.
  void on_lost(int64_t rank);
  void tick(double now);
  /// Ends the job with a message that `origin` tells its user; the first one wins.
  void abort(int64_t origin, const std::string& message);

  bool aborted() const { return aborted_; }
  bool all_finished() const { return num_finished_ == size(); }

 private:
  struct Peer {
    double heard = 0;
    bool here = false, finished = false;  // here: its text of this round has come
    std::string where, text;
  };
  int64_t size() const { return static_cast<int64_t>(peers_.size()); }
  Peer& peer(int64_t rank) { return peers_[static_cast<size_t>(rank)]; }
  void on_text(int64_t rank, const Frame& frame);
  std::string tell(int64_t rank) const { return watch_.tell(rank); }

  std::vector<Peer> peers_;
  ProgressWatch watch_;
  double silence_;
  Out out_;
  bool begun_ = false, aborted_ = false;
  int64_t round_ = 0, num_here_ = 0, first_here_ = 0, num_finished_ = 0;
  double next_look_ = 0;
};

}  // namespace moesaic
