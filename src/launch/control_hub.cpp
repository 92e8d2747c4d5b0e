#include "launch/control_hub.h"

#include "base/error.h"

namespace moesaic {

ControlHub::ControlHub(int64_t size, double timeout, double silence, Out out)
    : peers_(static_cast<size_t>(size)),
      statuses_(static_cast<size_t>(size)),
      timeout_(timeout),
      silence_(silence),
      out_(std::move(out)) {}

void ControlHub::begin(double now) {
  begun_ = true;
  for (Peer& p : peers_) p.heard = now;
}

void ControlHub::abort(int64_t origin, const std::string& message) {
  if (aborted_) return;
  aborted_ = true;
  out_.all({FrameKind::abort, {origin}, {message}});
}

void ControlHub::on_frame(int64_t rank, const Frame& frame, double now) {
  peer(rank).heard = now;
  switch (frame.kind) {
    case FrameKind::status:
      statuses_[static_cast<size_t>(rank)] = {frame.numbers[0], frame.texts[0]};
      return;
    case FrameKind::text:
      return on_text(rank, frame, now);
    case FrameKind::ask: {
      const int64_t about = frame.numbers[1];
      const bool known = about >= 0 && about < size();
      return out_.one(rank, {FrameKind::answer, {frame.numbers[0]}, {known ? tell(about) : ""}});
    }
    case FrameKind::abort:
      return abort(rank, frame.texts[0]);
    case FrameKind::finished:
      if (peer(rank).finished) return;
      peer(rank).finished = true;
      ++num_finished_;
      if (all_finished() && !aborted_) out_.all({FrameKind::all_finished, {}, {}});
      return;
    default:
      abort(0, fmt::format("{} sent what only rank 0 sends on the control channel", tell(rank)));
  }
}

void ControlHub::on_text(int64_t rank, const Frame& frame, double now) {
  Peer& from = peer(rank);
  if (from.here || frame.numbers[0] != round_)
    return abort(0, fmt::format("{} came to agreement {} of all ranks instead of {}", tell(rank),
                                frame.numbers[0], round_ + from.here));
  if (num_here_++ == 0) round_began_ = now;
  from.here = true;
  from.text = frame.texts[0];
  if (num_here_ < size()) return;
  Frame all{FrameKind::texts, {round_}, {}};
  int64_t bytes = 0;
  for (Peer& p : peers_) {
    bytes += static_cast<int64_t>(p.text.size());
    all.texts.push_back(std::move(p.text));
    p.text.clear();
    p.here = false;
  }
  ++round_;
  num_here_ = 0;
  if (bytes > kMaxTexts)
    return abort(
        0, fmt::format("the ranks' texts are {} bytes together, more than the control channel takes ({})",
                       bytes, kMaxTexts));
  if (!aborted_) out_.all(all);
}

void ControlHub::on_lost(int64_t rank) {
  if (aborted_ || all_finished()) return;
  abort(0, fmt::format("{} is gone: its connection to rank 0 has ended{}", tell(rank), tell_others(rank)));
}

void ControlHub::tick(double now) {
  if (aborted_ || !begun_ || all_finished()) return;
  for (int64_t r = 0; r < size(); ++r)
    if (now - peer(r).heard > silence_)
      return abort(0, fmt::format("{} was not heard of for {:g} s{}", tell(r), silence_, tell_others(r)));
  if (num_here_ == 0 || now - round_began_ <= timeout_) return;
  std::vector<int64_t> missing;
  for (int64_t r = 0; r < size(); ++r)
    if (!peer(r).here) missing.push_back(r);
  abort(0, fmt::format("{} did not come to an agreement of all ranks within {:g} s",
                       describe(missing, statuses_), timeout_));
}

std::string ControlHub::tell_others(int64_t rank) const {
  std::vector<int64_t> others;
  for (int64_t r = 0; r < static_cast<int64_t>(peers_.size()); ++r)
    if (r != rank) others.push_back(r);
  return others.empty() ? "" : "; the others: " + describe(others, statuses_);
}

}  // namespace moesaic
