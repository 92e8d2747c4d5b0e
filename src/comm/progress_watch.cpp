#include "comm/progress_watch.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

namespace moesaic {

std::string different_agreements(const std::string& rank, const std::string& where, const std::string& other,
                                 const std::string& other_where) {
  return fmt::format("{} came to the agreement of all ranks at {} where {} came to the one at {}", rank,
                     where, other, other_where);
}

void ProgressWatch::begin(double now) {
  for (Watched& rank : ranks_) rank.since = now;
}

void ProgressWatch::update(int64_t rank, const RankProgress& progress, double now) {
  Watched& watched = ranks_[static_cast<size_t>(rank)];
  const bool waited = watched.waits();
  if (progress.moves != watched.progress.moves || waited == progress.waits_for.empty()) watched.since = now;
  watched.progress = progress;
}

std::string ProgressWatch::overdue(double now) const {
  std::vector<int64_t> waiting, at_work, ended;
  double first_wait = std::numeric_limits<double>::infinity(), last_wait = 0, limit = 0;
  for (size_t r = 0; r < ranks_.size(); ++r) {
    const Watched& rank = ranks_[r];
    (!rank.waits() ? at_work : rank.has_ended() ? ended : waiting).push_back(static_cast<int64_t>(r));
    if (!rank.waits()) continue;
    first_wait = std::min(first_wait, rank.since);
    last_wait = std::max(last_wait, rank.since);
    limit = std::max(limit, rank.progress.limit);
  }
  if (at_work.empty()) {
    if (waiting.empty() || now <= last_wait + limit) return {};
    if (ended.empty())
      return fmt::format("all ranks wait for each other, and nothing moved for {:g} s: {}", limit,
                         tell(waiting, true));
    return fmt::format("{} will not come, and nothing moved for {:g} s: {}", tell(ended, false), limit,
                       tell(waiting, true));
  }
  limit = 0;
  for (int64_t r : at_work) {
    const Watched& rank = ranks_[static_cast<size_t>(r)];
    if (now <= std::max(rank.deadline(), first_wait + rank.progress.limit)) return {};
    limit = std::max(limit, rank.progress.limit);
  }
  waiting.insert(waiting.end(), ended.begin(), ended.end());
  std::sort(waiting.begin(), waiting.end());
  return fmt::format("{} stood still for {:g} s while others waited: {}", tell(at_work, false), limit,
                     tell(waiting, true));
}

std::string ProgressWatch::tell_others(int64_t rank) const {
  std::vector<int64_t> others;
  for (int64_t r = 0; r < static_cast<int64_t>(ranks_.size()); ++r)
    if (r != rank) others.push_back(r);
  return others.empty() ? "" : "; the others: " + tell(others, true);
}

std::string ProgressWatch::tell(const std::vector<int64_t>& ranks, bool with_waits) const {
  std::vector<RankStatus> statuses;
  statuses.reserve(ranks_.size());
  for (const Watched& rank : ranks_) {
    statuses.push_back(rank.progress.status);
    if (with_waits && rank.waits())
      statuses.back().operation += fmt::format("; waits for {}", rank.progress.waits_for);
  }
  return describe(ranks, statuses);
}

}  // namespace moesaic
