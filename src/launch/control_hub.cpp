#include "launch/control_hub.h"

#include "base/error.h"

namespace moesaic {
namespace {

constexpr double kSecondsBetweenLooks = 0.02;  // at all ranks: there may be thousands

}  // namespace

ControlHub::ControlHub(int64_t size, double silence, Out out)
    : peers_(static_cast<size_t>(size)), watch_(size), silence_(silence), out_(std::move(out)) {}

void ControlHub::begin(double now) {
  begun_ = true;
  for (Peer& p : peers_) p.heard = now;
  watch_.begin(now);
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
      watch_.update(rank,
                    {.status = {frame.numbers[0], frame.texts[0]},
                     .moves = static_cast<uint64_t>(frame.numbers[1]),
                     .limit = static_cast<double>(frame.numbers[2]) / 1000,
                     .waits_for = frame.texts[1]},
                    now);
      return;
    case FrameKind::text:
      return on_text(rank, frame);
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

void ControlHub::on_text(int64_t rank, const Frame& frame) {
  Peer& from = peer(rank);
  if (from.here || frame.numbers[0] != round_)
    return abort(0, fmt::format("{} came to agreement {} of all ranks instead of {}", tell(rank),
                                frame.numbers[0], round_ + from.here));
  if (num_here_++ == 0) first_here_ = rank;
  from.here = true;
  from.where = frame.texts[0], from.text = frame.texts[1];
  if (const Peer& first = peer(first_here_); first.where != from.where)
    return abort(0, different_agreements(tell(rank), from.where, tell(first_here_), first.where));
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
  abort(0, fmt::format("{} is gone: its connection to rank 0 has ended{}", tell(rank),
                       watch_.tell_others(rank)));
}

void ControlHub::tick(double now) {
  if (aborted_ || !begun_ || all_finished() || now < next_look_) return;
  next_look_ = now + kSecondsBetweenLooks;
  for (int64_t r = 0; r < size(); ++r)
    if (now - peer(r).heard > silence_)
      return abort(0,
                   fmt::format("{} was not heard of for {:g} s{}", tell(r), silence_, watch_.tell_others(r)));
  if (const std::string reason = watch_.overdue(now); !reason.empty()) abort(0, reason);
}

}  // namespace moesaic
