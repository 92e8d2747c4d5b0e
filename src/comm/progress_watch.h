#pragma once
// Which rank holds up a job. Ranks wait for each other all the time; what ends a job is a rank that begins nothing new for
// longer than it said it would, while another waits. Whom it waits for need not be the culprit: that one may wait too, so the
// blame goes to those that do not. Pure: what ranks do and when comes in. Used under the owner's lock, or by one thread.
#include <cstdint>
#include <string>
#include <vector>

#include "comm/rank_status.h"

namespace moesaic {

/// What a rank says about itself.
struct RankProgress {
  RankStatus status;
  uint64_t moves = 0;     // grows with every step and operation begun
  double limit = 10;      // seconds that it may stand still while others wait
  std::string waits_for;  // "rank 1 to join all_gather number 5"; empty: it waits for nobody
};

/// What a rank waits for that has done its work, and may therefore be what others wait for in vain.
inline constexpr const char* kWaitsForEnd = "all ranks to end their work";
/// How long a rank waits before it says so, and between two looks at the clock while it does.
inline constexpr double kSecondsBeforeWaiting = 0.02;

/// What to say when two ranks come to different agreements at the same time.
std::string different_agreements(const std::string& rank, const std::string& where, const std::string& other,
                                 const std::string& other_where);

class ProgressWatch {
 public:
  explicit ProgressWatch(int64_t size) : ranks_(static_cast<size_t>(size)) {}

  /// Nobody has stood still before `now`.
  void begin(double now);
  void update(int64_t rank, const RankProgress& progress, double now);
  /// Why the job has to end: the ranks that stood still, what they did last, and the same of all that wait. Empty while it
  /// need not.
  std::string overdue(double now) const;

  const RankStatus& status(int64_t rank) const { return ranks_[static_cast<size_t>(rank)].progress.status; }
  std::string tell(int64_t rank) const { return describe(rank, status(rank)); }
  /// "; the others: ...", all but one, with whom they wait for; "" when there are none.
  std::string tell_others(int64_t rank) const;

 private:
  struct Watched {
    RankProgress progress;
    double since = 0;  // it has stood still, or waited
    bool waits() const { return !progress.waits_for.empty(); }
    bool has_ended() const { return progress.waits_for == kWaitsForEnd; }
    double deadline() const { return since + progress.limit; }
  };
  std::string tell(const std::vector<int64_t>& ranks, bool with_waits) const;

  std::vector<Watched> ranks_;
};

}  // namespace moesaic
