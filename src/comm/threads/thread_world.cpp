#include "comm/threads/thread_world.h"

#include <algorithm>
#include <chrono>

#include "base/check.h"
#include "base/error.h"
#include "comm/threads/thread_hub.h"

namespace moesaic {

ThreadWorld::ThreadWorld(int64_t size, double timeout)
    : status_(static_cast<size_t>(size)),
      timeout_(timeout),
      texts_(static_cast<size_t>(size)),
      here_(static_cast<size_t>(size), false) {}
ThreadWorld::~ThreadWorld() = default;

void ThreadWorld::abort(const std::string& message) {
  const std::lock_guard lock(mutex_);
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

void ThreadWorld::set_step(int64_t rank, int64_t step) {
  const std::lock_guard lock(mutex_);
  status_[static_cast<size_t>(rank)].step = step;
}

void ThreadWorld::set_operation(int64_t rank, const std::string& operation) {
  const std::lock_guard lock(mutex_);
  status_[static_cast<size_t>(rank)].operation = operation;
}

std::string ThreadWorld::describe(int64_t rank) const {
  const std::lock_guard lock(mutex_);
  return moesaic::describe(rank, status_[static_cast<size_t>(rank)]);
}

std::vector<std::string> ThreadWorld::all_gather(int64_t rank, const std::string& mine) {
  const auto me = static_cast<size_t>(rank);
  std::unique_lock lock(mutex_);
  const uint64_t round = round_;
  texts_[me] = mine;
  here_[me] = true;
  if (std::all_of(here_.begin(), here_.end(), [](bool b) { return b; })) {
    result_ = texts_;
    std::fill(here_.begin(), here_.end(), false);
    ++round_;
    changed_.notify_all();
  }
  const auto over = [&] { return round_ != round || aborted_; };
  const bool in_time = changed_.wait_for(lock, std::chrono::duration<double>(timeout_), over);
  if (round_ != round) return result_;
  if (!in_time) {
    std::string missing;
    for (size_t r = 0; r < here_.size(); ++r)
      if (!here_[r]) {
        lock.unlock();
        missing += (missing.empty() ? "" : ", ") + describe(static_cast<int64_t>(r));
        lock.lock();
      }
    lock.unlock();
    abort(fmt::format("{} did not come to an agreement of all ranks within {:g} s", missing, timeout_));
    lock.lock();
  }
  throw CommError(message_);
}

std::unique_ptr<Communicator> ThreadWorld::communicator(const std::vector<int64_t>& ranks, int64_t rank,
                                                        std::unique_ptr<Mover> mover) {
  const auto at = std::find(ranks.begin(), ranks.end(), rank);
  MOESAIC_CHECK(at != ranks.end(), "rank {} is not in the group", rank);
  const std::lock_guard lock(mutex_);
  const size_t number = taken_[{ranks, rank}]++;
  auto& hubs = hubs_[ranks];
  if (hubs.size() <= number) hubs.push_back(std::make_shared<ThreadHub>(*this, ranks));
  return make_thread_communicator(hubs[number], at - ranks.begin(),
                                  mover ? std::move(mover) : make_cpu_mover());
}

}  // namespace moesaic
