#include "data/read_ahead.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace moesaic {

ReadAhead::ReadAhead(Source source, int64_t stride, int64_t depth)
    : source_(std::move(source)), stride_(stride), depth_(depth), thread_([this] { read(); }) {
  MOESAIC_CHECK(depth >= 1, "depth {}", depth);
}

ReadAhead::~ReadAhead() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void ReadAhead::read() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stop_ || (!next_.empty() && std::ssize(ready_) < depth_); });
    if (stop_) return;
    const int64_t aim = aim_;
    Ready one{next_, {}, nullptr};
    lock.unlock();
    try {
      one.batch = source_(one.positions);
    } catch (...) {
      one.error = std::current_exception();
    }
    lock.lock();
    if (aim != aim_) continue;
    aim_behind(one.positions);
    if (one.error) next_.clear();
    ready_.push_back(std::move(one));
    changed_.notify_all();
  }
}

bool ReadAhead::expects(std::span<const int64_t> positions) const {
  return !positions.empty() &&
         std::ranges::equal(ready_.empty() ? next_ : ready_.front().positions, positions);
}

void ReadAhead::aim_behind(std::span<const int64_t> positions) {
  next_.assign(positions.begin(), positions.end());
  for (int64_t& position : next_) position += stride_;
}

Batch ReadAhead::take(std::span<const int64_t> positions) {
  std::unique_lock lock(mutex_);
  if (expects(positions)) {
    changed_.wait(lock, [&] { return !ready_.empty(); });
    Ready one = std::move(ready_.front());
    ready_.pop_front();
    changed_.notify_all();
    if (one.error) std::rethrow_exception(one.error);
    return std::move(one.batch);
  }
  ++aim_;
  ready_.clear();
  next_.clear();
  lock.unlock();
  Batch batch = source_(positions);
  lock.lock();
  aim_behind(positions);
  changed_.notify_all();
  return batch;
}

}  // namespace moesaic
