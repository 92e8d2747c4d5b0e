#include <poll.h>

#include <cmath>

#include "base/error.h"
#include "base/log.h"
#include "launch/control_loops.h"
#include "launch/exit_code.h"

namespace moesaic {
namespace {

constexpr double kSecondsToEnd = 1;
constexpr double kSecondsToUnwind = 1;
constexpr double kExtraSecondsToJoin = 10;  // rank 0 gives up first, and says who is missing
constexpr int kTurnMilliseconds = 20;
constexpr double kBeat = 0.1, kBeatsPerSecond = 5000;
constexpr double kBeatsBeforeSilence = 10;

}  // namespace

double heartbeat_interval(int64_t size) {
  return std::max(kBeat, static_cast<double>(size) / kBeatsPerSecond);
}

double silence_limit(const JoinOptions& options) {
  return std::max(options.timeout, kBeatsBeforeSilence * heartbeat_interval(options.size));
}

Frame status_frame(const ControlState& state) {
  const RankProgress progress = state.progress();
  return {FrameKind::status,
          {progress.status.step, static_cast<int64_t>(progress.moves), std::llround(progress.limit * 1000)},
          {progress.status.operation, progress.waits_for}};
}

void leave_when_stuck(const JoinOptions& options, const ControlState& state) {
  if (!options.leave_when_stuck || !state.stuck(kSecondsToUnwind)) return;
  set_log_tag(fmt::format("rank {}", options.rank));
  if (state.origin() == options.rank) log_line(state.message());
  log_info("leaving in the middle of its work: {}", describe(options.rank, state.progress().status));
  std::_Exit(kExitLeftBehind);
}

ControlClient::ControlClient(const JoinOptions& options, ControlState& state,
                             std::unique_ptr<ControlLink> link)
    : options_(options), state_(state), link_(std::move(link)), heard_(steady_seconds()) {
  link_->send(encode({FrameKind::hello,
                      {kControlMagic, kControlVersion, options.rank, options.size,
                       static_cast<int64_t>(options.config), static_cast<int64_t>(options.job)},
                      {}}));
}

void ControlClient::run() {
  try {
    while (!state_.stopping()) turn();
    const double deadline = steady_seconds() + kSecondsToEnd;
    while (link_->wants_to_write() && !link_->lost() && steady_seconds() < deadline) {
      link_->flush();
      tcp::wait_for(link_->socket(), true, 0.01);
    }
    // The next job of this process must not find rank 0 still at this one.
    while (all_finished_ && !link_->lost() && steady_seconds() < deadline) {
      tcp::wait_for(link_->socket(), false, 0.01);
      link_->fill();
    }
  } catch (const std::exception& error) {
    state_.abort(options_.rank, fmt::format("the control channel to rank 0 failed: {}", error.what()));
    while (!state_.stopping()) {
      leave_when_stuck(options_, state_);
      ::poll(nullptr, 0, kTurnMilliseconds);
    }
  }
}

void ControlClient::turn() {
  pollfd events[] = {
      {state_.wake_descriptor(), POLLIN, 0},
      {link_->descriptor(), static_cast<short>(POLLIN | (link_->wants_to_write() ? POLLOUT : 0)), 0}};
  ::poll(events, link_->lost() ? 1 : 2, kTurnMilliseconds);
  link_->fill();
  const double now = steady_seconds();
  for (Frame frame; link_->next(frame); heard_ = now) {
    if (frame.kind == FrameKind::status)
      rank_0_ = {frame.numbers[0], frame.texts[0]};
    else
      state_.deliver(frame);
    welcomed_ = welcomed_ || frame.kind == FrameKind::welcome;
    all_finished_ = all_finished_ || frame.kind == FrameKind::all_finished;
  }
  if (!state_.aborted() && !all_finished_) {
    const std::string where = tcp::text_of(options_.address, options_.port);
    if (link_->lost())
      state_.abort(options_.rank,
                   welcomed_ ? fmt::format("{} is gone: its connection has ended; this was {}", tell_rank_0(),
                                           tell_me())
                             : fmt::format("rank 0 at {} ended the connection before the job began", where));
    else if (welcomed_ && now - heard_ > silence_limit(options_))
      state_.abort(options_.rank, fmt::format("{} was not heard of for {:g} s; this was {}", tell_rank_0(),
                                              silence_limit(options_), tell_me()));
    else if (!welcomed_ && now - heard_ > options_.join_timeout + kExtraSecondsToJoin)
      state_.abort(options_.rank, fmt::format("rank 0 at {} did not begin the job within {:g} s", where,
                                              options_.join_timeout));
  }
  auto posted = state_.take_posted();
  if (welcomed_ && (!posted.empty() || now - last_beat_ >= heartbeat_interval(options_.size))) {
    last_beat_ = now;
    posted.insert(posted.begin(), status_frame(state_));
  }
  if (!link_->lost()) {
    for (const Frame& frame : posted) link_->send(encode(frame));
    link_->flush();
  }
  leave_when_stuck(options_, state_);
}

}  // namespace moesaic
