#include "comm/threads/thread_hub.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/error.h"
#include "comm/threads/thread_world.h"

namespace moesaic {
namespace {

constexpr uint64_t kAsksPerLook = 8;  // at the clock

}  // namespace

/// One rank's side of one collective, from offer to completion.
class ThreadHub::Meeting {
 public:
  Meeting(ThreadWorld& world, Ring& ring, std::vector<int64_t> ranks, size_t me, const Call& call,
          Offer offer, Mover& mover, Pull pull)
      : world_(world),
        ring_(ring),
        ranks_(std::move(ranks)),
        me_(me),
        sequence_(call.sequence),
        stream_(call.stream),
        offer_(offer),
        mover_(mover),
        pull_(std::move(pull)),
        looked_(now()) {}

  bool advance() {
    world_.check();
    if (stage_ == 0) {
      if (sequence_ > kCells &&
          !all([&](Cell& c) { return c.left.load(std::memory_order_acquire) >= sequence_ - kCells; }))
        return late();
      Cell& mine = ring_.at(sequence_, me_);
      offer_.ready = mover_.mark(stream_);
      mine.offer = offer_;
      mine.posted.store(sequence_, std::memory_order_release);
      stage_ = 1;
    }
    if (stage_ == 1) {
      if (!all([&](Cell& c) { return c.posted.load(std::memory_order_acquire) == sequence_; })) return late();
      std::vector<Offer> offers(ring_.members);
      for (size_t p = 0; p < ring_.members; ++p) offers[p] = ring_.at(sequence_, p).offer;
      compare(offers);
      for (size_t p = 0; p < ring_.members; ++p)
        if (p != me_) mover_.wait(stream_, offers[p].ready);
      if (pull_) pull_(offers);
      ring_.at(sequence_, me_).pulled = mover_.mark(stream_);
      ring_.at(sequence_, me_).finished.store(sequence_, std::memory_order_release);
      stage_ = 2;
    }
    if (!all([&](Cell& c) { return c.finished.load(std::memory_order_acquire) >= sequence_; })) return late();
    for (size_t p = 0; p < ring_.members; ++p)
      if (p != me_) mover_.wait(stream_, ring_.at(sequence_, p).pulled);
    ring_.at(sequence_, me_).left.store(sequence_, std::memory_order_release);
    if (waits_) world_.set_waiting(ranks_[me_], "");
    return true;
  }

 private:
  static double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
  template <class F>
  bool all(F&& f) {
    for (size_t p = 0; p < ring_.members; ++p)
      if (!f(ring_.at(sequence_, p))) return false;
    return true;
  }
  static std::string text(const Offer& offer) {
    return fmt::format("{} of {} bytes{}", offer.kind, offer.size,
                       offer.root < 0 ? "" : fmt::format(" from rank {} of its group", offer.root));
  }
  void compare(const std::vector<Offer>& offers) {
    for (size_t p = 0; p < offers.size(); ++p) {
      if (std::strcmp(offers[p].kind, offer_.kind) == 0 && offers[p].size == offer_.size &&
          offers[p].root == offer_.root)
        continue;
      world_.abort(fmt::format("{} called {} where {} called {}", world_.describe(ranks_[me_]), text(offer_),
                               world_.describe(ranks_[p]), text(offers[p])));
      world_.check();
    }
  }
  /// Not yet; says so now and then, which ends the job when somebody is overdue.
  bool late() {
    if (++asked_ % kAsksPerLook != 0 || now() < looked_ + kSecondsBeforeWaiting) return false;
    looked_ = now();
    std::vector<int64_t> missing;
    for (size_t p = 0; p < ring_.members; ++p) {
      Cell& c = ring_.at(sequence_, p);
      // Stage 0 waits for those whose part of an older collective still lies in the cell.
      const bool here = stage_ == 2   ? c.finished.load() >= sequence_
                        : stage_ == 1 ? c.posted.load() == sequence_
                                      : c.left.load() >= sequence_ - kCells;
      if (!here) missing.push_back(ranks_[p]);
    }
    if (missing.empty()) return false;
    std::sort(missing.begin(), missing.end());
    const std::string call = stage_ == 0 ? fmt::format("be done with number {}", sequence_ - kCells)
                                         : fmt::format("join {} number {}", offer_.kind, sequence_);
    world_.set_waiting(ranks_[me_], fmt::format("{} to {}", name_ranks(missing), call));
    waits_ = true;
    return false;
  }

  ThreadWorld& world_;
  Ring& ring_;
  std::vector<int64_t> ranks_;
  size_t me_;
  uint64_t sequence_;
  void* stream_;
  Offer offer_;
  Mover& mover_;
  Pull pull_;
  double looked_;  // at the clock, last
  int stage_ = 0;
  uint64_t asked_ = 0;
  bool waits_ = false;  // and has said so
};

ThreadHub::ThreadHub(ThreadWorld& world, std::vector<int64_t> ranks)
    : world_(world), ranks_(std::move(ranks)), ring_(ranks_.size()) {
  for (size_t i = 0; i < ranks_.size() * ranks_.size(); ++i) pairs_.push_back(std::make_unique<Ring>(2));
}

Mover& ThreadHub::keep(std::unique_ptr<Mover> mover) {
  const std::lock_guard lock(mutex_);
  movers_.push_back(std::move(mover));
  return *movers_.back();
}

Pending ThreadHub::meet(Ring& ring, std::vector<int64_t> global_ranks, size_t me, const Call& call,
                        Offer offer, Mover& mover, Pull pull) {
  auto meeting = std::make_shared<Meeting>(world_, ring, std::move(global_ranks), me, call, offer, mover,
                                           std::move(pull));
  return [meeting] { return meeting->advance(); };
}

Pending ThreadHub::collective(int64_t rank, const Call& call, Offer offer, Mover& mover, Pull pull) {
  return meet(ring_, ranks_, static_cast<size_t>(rank), call, offer, mover, std::move(pull));
}

Pending ThreadHub::message(int64_t source, int64_t destination, bool sender, const Call& call, Offer offer,
                           Mover& mover, Pull pull) {
  MOESAIC_CHECK(source != destination);
  const auto s = static_cast<size_t>(source), d = static_cast<size_t>(destination);
  return meet(*pairs_[s * ranks_.size() + d], {ranks_[s], ranks_[d]}, sender ? 0 : 1, call, offer, mover,
              std::move(pull));
}

}  // namespace moesaic
