#include "comm/threads/thread_world.h"

#include <algorithm>
#include <chrono>
#include <new>

#include "base/check.h"
#include "base/error.h"
#include "comm/meeting/meeting_place.h"
#include "comm/threads/thread_control.h"

namespace moesaic {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

/// What the members of a group share. Movers stay with it: their marks may be waited for after a member has gone.
struct ThreadWorld::Group {
  explicit Group(size_t size) {
    const auto bytes = static_cast<size_t>(MemberBoard::bytes(static_cast<int64_t>(size)));
    for (size_t i = 0; i < size; ++i) {
      memory.emplace_back(new (std::align_val_t{alignof(Cell)}) std::byte[bytes]());
      boards.emplace_back(memory.back().get(), static_cast<int64_t>(size), true);
    }
  }
  struct Free {
    void operator()(std::byte* bytes) const { ::operator delete[](bytes, std::align_val_t{alignof(Cell)}); }
  };
  std::vector<std::unique_ptr<std::byte[], Free>> memory;
  std::vector<MemberBoard> boards;
  std::vector<std::unique_ptr<Mover>> movers;
};

ThreadWorld::ThreadWorld(int64_t size, double timeout)
    : progress_(static_cast<size_t>(size)),
      watch_(size),
      texts_(static_cast<size_t>(size)),
      where_(static_cast<size_t>(size)),
      here_(static_cast<size_t>(size), false) {
  for (int64_t r = 0; r < size; ++r) {
    set_time_limit(r, timeout);
    controls_.push_back(std::make_unique<ThreadControl>(*this, r));
  }
  watch_.begin(now());
}
ThreadWorld::~ThreadWorld() = default;

void ThreadWorld::abort(const std::string& message) {
  const std::lock_guard lock(mutex_);
  abort_locked(message);
}

void ThreadWorld::abort_locked(const std::string& message) {
  if (aborted_) return;
  message_ = message;
  aborted_.store(true, std::memory_order_release);
  changed_.notify_all();
}

void ThreadWorld::check() const {
  if (aborted()) throw CommError(message());
}

std::string ThreadWorld::message() const {
  const std::lock_guard lock(mutex_);
  return message_;
}

template <class F>
void ThreadWorld::change(int64_t rank, F&& f) {
  RankProgress& progress = progress_[static_cast<size_t>(rank)];
  f(progress);
  watch_.update(rank, progress, now());
}

void ThreadWorld::set_step(int64_t rank, int64_t step) {
  const std::lock_guard lock(mutex_);
  change(rank, [&](RankProgress& p) { p.status.step = step, ++p.moves, p.waits_for.clear(); });
}

void ThreadWorld::set_operation(int64_t rank, const std::string& operation) {
  const std::lock_guard lock(mutex_);
  change(rank, [&](RankProgress& p) { p.status.operation = operation, ++p.moves, p.waits_for.clear(); });
}

void ThreadWorld::set_time_limit(int64_t rank, double seconds) {
  const std::lock_guard lock(mutex_);
  change(rank, [&](RankProgress& p) { p.limit = seconds; });
}

void ThreadWorld::set_waiting(int64_t rank, const std::string& waits_for) {
  const std::lock_guard lock(mutex_);
  change(rank, [&](RankProgress& p) { p.waits_for = waits_for; });
  watch_locked();
}

void ThreadWorld::watch() {
  const std::lock_guard lock(mutex_);
  watch_locked();
}

void ThreadWorld::watch_locked() {
  if (aborted_) return;
  if (const std::string reason = watch_.overdue(now()); !reason.empty()) abort_locked(reason);
}

std::string ThreadWorld::describe(int64_t rank) const {
  const std::lock_guard lock(mutex_);
  return watch_.tell(rank);
}

std::vector<std::string> ThreadWorld::all_gather(int64_t rank, const std::string& mine,
                                                 const std::string& where) {
  const auto me = static_cast<size_t>(rank);
  std::unique_lock lock(mutex_);
  const uint64_t round = round_;
  texts_[me] = mine;
  where_[me] = where;
  here_[me] = true;
  for (size_t r = 0; r < here_.size(); ++r)
    if (here_[r] && where_[r] != where)
      abort_locked(
          different_agreements(watch_.tell(rank), where, watch_.tell(static_cast<int64_t>(r)), where_[r]));
  if (std::all_of(here_.begin(), here_.end(), [](bool b) { return b; })) {
    result_ = texts_;
    std::fill(here_.begin(), here_.end(), false);
    ++round_;
    changed_.notify_all();
  }
  const auto over = [&] { return round_ != round || aborted_; };
  while (!changed_.wait_for(lock, std::chrono::duration<double>(kSecondsBeforeWaiting), over)) {
    std::vector<int64_t> missing;
    for (size_t r = 0; r < here_.size(); ++r)
      if (!here_[r]) missing.push_back(static_cast<int64_t>(r));
    change(rank, [&](RankProgress& p) {
      p.waits_for = name_ranks(missing) + " to come to an agreement of all ranks";
    });
    watch_locked();
  }
  if (round_ == round) throw CommError(message_);
  change(rank, [](RankProgress& p) { p.waits_for.clear(); });
  return result_;
}

std::unique_ptr<Communicator> ThreadWorld::communicator(const std::vector<int64_t>& ranks, int64_t rank,
                                                        std::unique_ptr<Mover> mover) {
  const auto at = std::find(ranks.begin(), ranks.end(), rank);
  MOESAIC_CHECK(at != ranks.end(), "rank {} is not in the group", rank);
  const std::lock_guard lock(mutex_);
  const size_t number = taken_[{ranks, rank}]++;
  auto& groups = groups_[ranks];
  if (groups.size() <= number) groups.push_back(std::make_shared<Group>(ranks.size()));
  const std::shared_ptr<Group> group = groups[number];
  group->movers.push_back(mover ? std::move(mover) : make_cpu_mover());
  return make_meeting_communicator(MeetingPlace(control(rank), ranks, static_cast<size_t>(at - ranks.begin()),
                                                group->boards, *group->movers.back(), group));
}

}  // namespace moesaic
