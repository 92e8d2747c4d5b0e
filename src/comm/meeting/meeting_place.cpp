#include "comm/meeting/meeting_place.h"

#include <algorithm>
#include <chrono>
#include <new>

#include "base/check.h"
#include "base/error.h"
#include "comm/progress_watch.h"

namespace moesaic {
namespace {

constexpr uint64_t kAsksPerLook = 8;  // at the clock

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string text(const char* kind, int64_t size, int64_t root) {
  return fmt::format("{} of {} bytes{}", kind, size,
                     root < 0 ? "" : fmt::format(" from rank {} of its group", root));
}

int64_t cells_of(int64_t size) {
  return (1 + 2 * size) * static_cast<int64_t>(kCells);
}

}  // namespace

int64_t MemberBoard::bytes(int64_t size) {
  return kNotesBytes + cells_of(size) * static_cast<int64_t>(sizeof(Cell));
}

MemberBoard::MemberBoard(std::byte* memory, int64_t size, bool make)
    : notes_(memory), cells_(reinterpret_cast<Cell*>(memory + kNotesBytes)) {
  if (make) std::uninitialized_default_construct_n(cells_, cells_of(size));
}

/// One rank's side of one collective, from offer to completion.
class MeetingPlace::Meeting {
 public:
  Meeting(Control& control, const std::vector<int64_t>& ranks, Mover& mover, Party party, const Call& call,
          Offer offer, Pull pull)
      : control_(control),
        ranks_(ranks),
        mover_(mover),
        party_(std::move(party)),
        sequence_(call.sequence),
        stream_(call.stream),
        offer_(offer),
        pull_(std::move(pull)),
        looked_(now()) {}

  bool advance() {
    control_.check();
    if (stage_ == 0) {
      if (sequence_ > kCells &&
          !all([&](Cell& c) { return c.left.load(std::memory_order_acquire) >= sequence_ - kCells; }))
        return late();
      post();
      stage_ = 1;
    }
    if (stage_ == 1) {
      if (!all([&](Cell& c) { return c.posted.load(std::memory_order_acquire) == sequence_; })) return late();
      const std::vector<Offer> offers = read_offers();
      for (size_t p = 0; p < party_.cells.size(); ++p)
        if (p != party_.me) mover_.wait(stream_, party_.members[p], party_.cells[p]->ready);
      if (pull_) pull_(offers);
      mine().pulled = mover_.mark(stream_);
      mine().finished.store(sequence_, std::memory_order_release);
      stage_ = 2;
    }
    if (!all([&](Cell& c) { return c.finished.load(std::memory_order_acquire) >= sequence_; })) return late();
    for (size_t p = 0; p < party_.cells.size(); ++p)
      if (p != party_.me) mover_.wait(stream_, party_.members[p], party_.cells[p]->pulled);
    mine().left.store(sequence_, std::memory_order_release);
    if (waits_) control_.set_waiting("");
    return true;
  }

 private:
  Cell& mine() { return *party_.cells[party_.me]; }
  int64_t rank_of(size_t p) const { return ranks_[party_.members[p]]; }
  template <class F>
  bool all(F&& f) {
    return std::all_of(party_.cells.begin(), party_.cells.end(), [&](Cell* cell) { return f(*cell); });
  }
  void post() {
    Cell& cell = mine();
    MOESAIC_CHECK(std::strlen(offer_.kind) <= kMaxKind);
    std::strcpy(cell.kind.data(), offer_.kind);
    cell.size = offer_.size, cell.root = offer_.root;
    cell.data = mover_.publish(offer_.data);
    cell.offsets = mover_.publish(offer_.offsets);
    cell.ready = mover_.mark(stream_);
    cell.posted.store(sequence_, std::memory_order_release);
  }
  /// The others' offers, after a look that all have called the same.
  std::vector<Offer> read_offers() {
    std::vector<Offer> offers(party_.cells.size(), offer_);
    for (size_t p = 0; p < offers.size(); ++p) {
      if (p == party_.me) continue;
      const Cell& cell = *party_.cells[p];
      if (std::strcmp(cell.kind.data(), offer_.kind) != 0 || cell.size != offer_.size ||
          cell.root != offer_.root) {
        control_.abort(fmt::format("{} called {} where {} called {}", control_.describe(control_.rank()),
                                   text(offer_.kind, offer_.size, offer_.root), control_.describe(rank_of(p)),
                                   text(cell.kind.data(), cell.size, cell.root)));
        control_.check();
      }
      offers[p].data = mover_.reach(party_.members[p], cell.data);
      offers[p].offsets = reinterpret_cast<const int32_t*>(mover_.reach(party_.members[p], cell.offsets));
    }
    return offers;
  }
  /// Not yet; says so now and then, which ends the job when somebody is overdue.
  bool late() {
    if (++asked_ % kAsksPerLook != 0 || now() < looked_ + kSecondsBeforeWaiting) return false;
    looked_ = now();
    std::vector<int64_t> missing;
    for (size_t p = 0; p < party_.cells.size(); ++p) {
      Cell& c = *party_.cells[p];
      // Stage 0 waits for those whose part of an older collective still lies in the cell.
      const bool here = stage_ == 2   ? c.finished.load() >= sequence_
                        : stage_ == 1 ? c.posted.load() == sequence_
                                      : c.left.load() >= sequence_ - kCells;
      if (!here) missing.push_back(rank_of(p));
    }
    if (missing.empty()) return false;
    std::sort(missing.begin(), missing.end());
    const std::string call = stage_ == 0 ? fmt::format("be done with number {}", sequence_ - kCells)
                                         : fmt::format("join {} number {}", offer_.kind, sequence_);
    control_.set_waiting(fmt::format("{} to {}", name_ranks(missing), call));
    waits_ = true;
    return false;
  }

  Control& control_;
  const std::vector<int64_t>& ranks_;
  Mover& mover_;
  Party party_;
  uint64_t sequence_;
  void* stream_;
  Offer offer_;
  Pull pull_;
  double looked_;  // at the clock, last
  int stage_ = 0;
  uint64_t asked_ = 0;
  bool waits_ = false;  // and has said so
};

MeetingPlace::MeetingPlace(Control& control, std::vector<int64_t> ranks, size_t me,
                           std::vector<MemberBoard> boards, Mover& mover, std::shared_ptr<void> keeps)
    : control_(control),
      ranks_(std::move(ranks)),
      me_(me),
      boards_(std::move(boards)),
      mover_(mover),
      keeps_(std::move(keeps)) {
  MOESAIC_CHECK(me_ < ranks_.size() && boards_.size() == ranks_.size());
}

Pending MeetingPlace::meet(Party party, const Call& call, Offer offer, Pull pull) {
  auto meeting =
      std::make_shared<Meeting>(control_, ranks_, mover_, std::move(party), call, offer, std::move(pull));
  return [meeting] { return meeting->advance(); };
}

Pending MeetingPlace::collective(const Call& call, Offer offer, Pull pull) {
  Party party{.members = {}, .cells = {}, .me = me_};
  for (size_t p = 0; p < ranks_.size(); ++p) {
    party.members.push_back(p);
    party.cells.push_back(&boards_[p].collective(call.sequence));
  }
  return meet(std::move(party), call, offer, std::move(pull));
}

Pending MeetingPlace::message(int64_t peer, bool sends, const Call& call, Offer offer, Pull pull) {
  MOESAIC_CHECK(peer != rank());
  const auto other = static_cast<size_t>(peer);
  Party party{.members = {me_, other},
              .cells = {&boards_[me_].message(peer, sends, call.sequence),
                        &boards_[other].message(rank(), !sends, call.sequence)},
              .me = 0};
  return meet(std::move(party), call, offer, std::move(pull));
}

}  // namespace moesaic
