#include "comm/messages/operation.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>

#include "base/check.h"
#include "base/error.h"
#include "comm/messages/messenger.h"
#include "comm/progress_watch.h"

namespace moesaic::messages {
namespace {

constexpr uint64_t kAsksPerLook = 8;  // at the clock

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

const char* name_of(Kind kind) {
  static constexpr std::array<const char*, 10> names{
      "all_gather",        "reduce_scatter",  "all_reduce", "all_to_all", "exchange_parts",
      "all_to_all_blocks", "all_to_all_rows", "broadcast",  "barrier",    "message"};
  const auto index = static_cast<size_t>(kind);
  return index < names.size() ? names[index] : "something unknown";
}

Operation::Operation(std::shared_ptr<Messenger> messenger, Request request)
    : messenger_(std::move(messenger)),
      request_(std::move(request)),
      offered_(request_.ranks.size(), 0),
      receiving_(request_.ranks.size(), 0),
      num_offers_missing_(request_.ranks.size() - 1),
      looked_(now()) {
  for (size_t p = 0; p < request_.parts.size(); ++p) {
    const Part& part = request_.parts[p];
    if (p == request_.me) {
      const int64_t bytes = std::min(part.send_bytes, part.want);
      if (bytes > 0 && part.send != part.receive)
        std::memcpy(part.receive, part.send, static_cast<size_t>(bytes));
    } else if (part.want > 0) {
      receiving_[p] = 1;
      ++num_receiving_;
    }
  }
  offered_[request_.me] = 1;
  try {
    messenger_->post(*this, request_.ranks, request_.offer, request_.parts);
  } catch (...) {
    messenger_->forget(*this);
    throw;
  }
}

Operation::~Operation() {
  messenger_->forget(*this);
}

bool Operation::advance() {
  messenger_->control().check();
  if (complete_) return true;
  messenger_->progress();
  if (num_offers_missing_ > 0 || num_receiving_ > 0 || unsent_ > 0) return late();
  if (request_.finish) request_.finish();
  messenger_->forget(*this);
  if (waits_) messenger_->control().set_waiting("");
  return complete_ = true;
}

size_t Operation::member(int64_t rank) const {
  const auto at = std::find(request_.ranks.begin(), request_.ranks.end(), rank);
  return static_cast<size_t>(at - request_.ranks.begin());
}

std::string Operation::text(const Offer& offer) const {
  return fmt::format("{} of {} bytes{}", name_of(offer.kind), offer.size,
                     offer.root < 0 ? "" : fmt::format(" from rank {} of its group", offer.root));
}

void Operation::on_offer(int64_t rank, const Offer& offer, int64_t want,
                         const std::optional<Bytes>& attached) {
  Control& control = messenger_->control();
  const size_t p = member(rank);
  if (p == request_.ranks.size() || offered_[p]) {
    control.abort(fmt::format("{} joined {} number {} twice, or is no member of its group",
                              control.describe(rank), name_of(request_.offer.kind), request_.key.sequence));
    control.check();
  }
  if (offer != request_.offer) {
    control.abort(fmt::format("{} called {} where {} called {}", control.describe(messenger_->rank()),
                              text(request_.offer), control.describe(rank), text(offer)));
    control.check();
  }
  offered_[p] = 1;
  --num_offers_missing_;
  const Part& part = request_.parts[p];
  if (want > 0 && !part.attached())
    messenger_->send_data(*this, rank, part.send, std::min(part.send_bytes, want));
  if (!attached || !receiving_[p]) return;
  const auto bytes = static_cast<int64_t>(attached->size());
  if (bytes > 0) std::memcpy(part.receive, attached->data(), static_cast<size_t>(std::min(bytes, part.want)));
  on_received(rank);
}

bool Operation::wants(int64_t rank, int64_t bytes) const {
  const size_t p = member(rank);
  if (p == request_.ranks.size() || !receiving_[p] || bytes < 0) return false;
  const int64_t want = request_.parts[p].want;
  return request_.offer.kind == Kind::all_to_all_rows ? bytes <= want : bytes == want;
}

void Operation::on_received(int64_t rank) {
  receiving_[member(rank)] = 0;
  --num_receiving_;
}

/// Those who have not called it; if all have, those with whom something is still to pass.
std::vector<int64_t> Operation::missing() const {
  const bool joined = num_offers_missing_ == 0;
  std::vector<int64_t> ranks;
  for (size_t p = 0; p < request_.ranks.size(); ++p) {
    if (p == request_.me || (joined ? num_receiving_ > 0 && !receiving_[p] : offered_[p])) continue;
    ranks.push_back(request_.ranks[p]);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

/// Not yet; when nothing has moved for a moment, says so.
bool Operation::late() {
  if (++asked_ % kAsksPerLook != 0) return false;
  for (size_t p = 0; p < request_.ranks.size(); ++p)
    if (p != request_.me) messenger_->check_connection(request_.ranks[p]);
  if (now() < looked_ + kSecondsBeforeWaiting) return false;
  looked_ = now();
  Control& control = messenger_->control();
  if (const uint64_t moved = messenger_->bytes_moved(); moved != moved_) {
    moved_ = moved;
    if (waits_) control.set_waiting("");
    waits_ = false;
    return false;
  }
  control.set_waiting(fmt::format("{} to join {} number {}", name_ranks(missing()),
                                  name_of(request_.offer.kind), request_.key.sequence));
  waits_ = true;
  return false;
}

}  // namespace moesaic::messages
