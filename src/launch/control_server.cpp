#include <poll.h>

#include <algorithm>
#include <random>

#include "base/error.h"
#include "base/log.h"
#include "launch/control_loops.h"

namespace moesaic {
namespace {

constexpr int64_t kShortFrames = 4096;  // of somebody who has not said who it is
constexpr int64_t kLongFrames = int64_t{1} << 30;
constexpr double kSecondsForHello = 10;
constexpr size_t kMostWaiting = 64;  // beside the ranks that are still to come
constexpr int kMostWarnings = 3;
constexpr double kSecondsToEnd = 0.5;  // less than others leave rank 0 to speak (process_rank.cpp)
constexpr int kTurnMilliseconds = 20;

uint64_t draw_token() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

}  // namespace

ControlServer::ControlServer(const JoinOptions& options, ControlState& state)
    : options_(options),
      state_(state),
      // Others reach this machine by names of their own, unless the job says that there are no others.
      listener_(tcp::listen_at(
          tcp::is_loopback(options.address) ? tcp::resolve(options.address, options.port).front().host : "",
          options.port)),
      links_(static_cast<size_t>(options.size)),
      lost_(static_cast<size_t>(options.size), false),
      hub_(options.size, silence_limit(options),
           {.one = [this](int64_t rank, const Frame& frame) { send(rank, frame); },
            .all = [this](const Frame& frame) { send_all(frame); }}),
      began_(steady_seconds()) {}

void ControlServer::send(int64_t rank, const Frame& frame) {
  if (rank == 0) return state_.deliver(frame);
  if (ControlLink* link = links_[static_cast<size_t>(rank)].get(); link && !link->lost())
    link->send(encode(frame));
}

void ControlServer::send_all(const Frame& frame) {
  const std::string encoded = encode(frame);
  for (const auto& link : links_)
    if (link && !link->lost()) link->send(encoded);
  state_.deliver(frame);
}

void ControlServer::run() {
  try {
    if (num_joined_ == options_.size) begin(steady_seconds());
    while (!state_.stopping()) turn();
  } catch (const std::exception& error) {
    hub_.abort(0, fmt::format("the control channel of rank 0 failed: {}", error.what()));
    state_.abort(0, fmt::format("the control channel of rank 0 failed: {}", error.what()));
  }
  end();
}

void ControlServer::turn() {
  std::vector<pollfd> events{{state_.wake_descriptor(), POLLIN, 0}, {listener_.descriptor(), POLLIN, 0}};
  const auto watch = [&](const ControlLink& link) {
    if (!link.lost())
      events.push_back(
          {link.descriptor(), static_cast<short>(POLLIN | (link.wants_to_write() ? POLLOUT : 0)), 0});
  };
  for (const auto& link : links_)
    if (link) watch(*link);
  for (const Waiting& waiting : waiting_) watch(*waiting.link);
  ::poll(events.data(), events.size(), kTurnMilliseconds);
  const double now = steady_seconds();
  if (events[1].revents != 0) accept_all(now);
  read_waiting(now);
  read_ranks(now);
  const auto posted = state_.take_posted();
  if (!posted.empty()) last_beat_ = 0;  // what others are told next comes with what rank 0 does now
  beat(now);
  for (const Frame& frame : posted) hub_.on_frame(0, frame, now);
  if (!begun_) give_up_joining(now);
  hub_.tick(now);
  flush_all();
  leave_when_stuck(options_, state_);
}

void ControlServer::accept_all(double now) {
  while (tcp::Socket socket = tcp::accept_from(listener_)) {
    if (waiting_.size() >= kMostWaiting + static_cast<size_t>(options_.size - num_joined_)) continue;
    waiting_.push_back({std::make_unique<ControlLink>(std::move(socket), kShortFrames), now});
  }
}

void ControlServer::read_waiting(double now) {
  for (Waiting& waiting : waiting_) {
    waiting.link->fill();
    Frame frame;
    try {
      if (!waiting.refused && waiting.link->next(frame)) on_hello(waiting, frame);
    } catch (const CommError&) {
      waiting.link = nullptr;  // not one of ours
    }
  }
  // What has become a rank's has moved to links_. A refused one stays until it has read why.
  std::erase_if(waiting_, [&](const Waiting& w) {
    return !w.link || w.link->lost() || now - w.since > kSecondsForHello;
  });
}

std::string ControlServer::reason_to_refuse(const Frame& hello) const {
  if (hello.kind != FrameKind::hello || hello.numbers[0] != kControlMagic)
    return "what came is not from a Moesaic job";
  const int64_t version = hello.numbers[1], rank = hello.numbers[2], size = hello.numbers[3];
  const std::string here = tcp::text_of(options_.address, options_.port);
  const std::string hint = "; if another job uses that port, set run.control_port";
  if (version != kControlVersion)
    return fmt::format(
        "rank 0 at {} speaks version {} of the control channel, this rank version {}: run the same "
        "Moesaic everywhere",
        here, kControlVersion, version);
  if (static_cast<uint64_t>(hello.numbers[5]) != options_.job)
    return fmt::format("the job at {} is another one: its launcher gave it another name{}", here, hint);
  if (size != options_.size)
    return fmt::format("the job at {} has {} ranks, this one {}{}", here, options_.size, size, hint);
  if (static_cast<uint64_t>(hello.numbers[4]) != options_.config)
    return fmt::format("the job at {} was given another configuration than this rank{}", here, hint);
  if (rank < 1 || rank >= options_.size)
    return fmt::format("this says that it is rank {}, the job at {} has ranks 1 to {} beside its own{}", rank,
                       here, options_.size - 1, hint);
  if (links_[static_cast<size_t>(rank)])
    return fmt::format("the job at {} has a rank {} already{}", here, rank, hint);
  return {};
}

void ControlServer::on_hello(Waiting& waiting, const Frame& hello) {
  if (const std::string reason = reason_to_refuse(hello); !reason.empty()) {
    if (num_warnings_++ < kMostWarnings)
      log_warning("refused a connection from {}: {}", tcp::peer_host(waiting.link->socket()), reason);
    waiting.link->send(encode({FrameKind::refuse, {}, {reason}}));
    waiting.link->flush();
    waiting.link->end_sending();
    waiting.refused = true;
    return;
  }
  waiting.link->set_limit(kLongFrames);
  links_[static_cast<size_t>(hello.numbers[2])] = std::move(waiting.link);
  if (++num_joined_ == options_.size) begin(steady_seconds());
}

void ControlServer::begin(double now) {
  begun_ = true;
  Frame welcome{FrameKind::welcome, {static_cast<int64_t>(draw_token())}, {""}};
  bool one_machine = true;
  for (const auto& link : links_) {
    if (!link) continue;
    const std::string host = tcp::peer_host(link->socket());
    one_machine = one_machine && tcp::is_loopback(host);
    welcome.texts.push_back(tcp::is_loopback(host) ? "" : host);  // "": on rank 0's machine, by whatever name
  }
  if (one_machine) welcome.texts.assign(links_.size(), "127.0.0.1");
  hub_.begin(now);
  send_all(welcome);
}

void ControlServer::give_up_joining(double now) {
  if (hub_.aborted() || now - began_ <= options_.join_timeout) return;
  std::string missing;
  for (size_t r = 1; r < links_.size(); ++r)
    if (!links_[r]) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", r);
  hub_.abort(0,
             fmt::format("{} of {} ranks came to {} within {:g} s; missing: {}", num_joined_, options_.size,
                         tcp::text_of(options_.address, options_.port), options_.join_timeout,
                         missing.size() > 200 ? missing.substr(0, 200) + "..." : missing));
}

void ControlServer::read_ranks(double now) {
  for (size_t r = 1; r < links_.size(); ++r) {
    ControlLink* link = links_[r].get();
    if (!link || lost_[r]) continue;
    const auto rank = static_cast<int64_t>(r);
    try {
      link->fill();
      for (Frame frame; link->next(frame);) hub_.on_frame(rank, frame, now);
    } catch (const CommError& error) {
      hub_.abort(0, fmt::format("rank {}: {}", rank, error.what()));
    }
    if (!link->lost()) continue;
    lost_[r] = true;
    hub_.on_lost(rank);
  }
}

void ControlServer::beat(double now) {
  if (now - last_beat_ < heartbeat_interval(options_.size)) return;
  last_beat_ = now;
  const Frame status = status_frame(state_);
  hub_.on_frame(0, status, now);
  const std::string encoded = encode(status);
  for (const auto& link : links_)
    if (link && !link->lost()) link->send(encoded);
}

void ControlServer::flush_all() {
  for (const auto& link : links_)
    if (link && link->wants_to_write()) link->flush();
}

/// What was sent last must arrive: a connection that is closed with something unread loses it. So each side ends its stream,
/// and the others close first. Who comes from now on is for the next job.
void ControlServer::end() {
  listener_.close();
  const double deadline = steady_seconds() + kSecondsToEnd;
  std::vector<bool> ended(links_.size(), false);
  for (bool open = true; open && steady_seconds() < deadline;) {
    open = false;
    std::vector<pollfd> events;
    for (size_t r = 1; r < links_.size(); ++r) {
      ControlLink* link = links_[r].get();
      if (!link || link->lost()) continue;
      link->flush();
      if (!link->wants_to_write() && !ended[r]) {
        ended[r] = true;
        link->end_sending();
      }
      try {
        link->fill();
        for (Frame frame; link->next(frame);) {
        }
      } catch (const CommError&) {
      }
      open = open || !link->lost();
      events.push_back({link->descriptor(), static_cast<short>(POLLIN | (ended[r] ? 0 : POLLOUT)), 0});
    }
    if (open) ::poll(events.data(), events.size(), kTurnMilliseconds);
  }
}

}  // namespace moesaic
