#include "launch/control_state.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace moesaic {
namespace {

constexpr size_t kLongestText = 512, kLongestMessage = 100000;
constexpr std::chrono::milliseconds kTurn{1};  // between two calls of what is done while waiting

}  // namespace

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

ControlState::ControlState(int64_t rank, double limit)
    : rank_(rank), wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  progress_.limit = limit;
  require<CommError>(wake_ >= 0, "no event descriptor could be made: {}", std::strerror(errno));
}

ControlState::~ControlState() {
  ::close(wake_);
}

void ControlState::set_step(int64_t step) {
  const std::lock_guard lock(mutex_);
  progress_.status.step = step;
  progress_.waits_for.clear();
  ++progress_.moves;
}

void ControlState::set_operation(const std::string& operation) {
  const std::lock_guard lock(mutex_);
  progress_.status.operation.assign(operation, 0, kLongestText);
  progress_.waits_for.clear();
  ++progress_.moves;
}

void ControlState::set_time_limit(double seconds) {
  const std::lock_guard lock(mutex_);
  progress_.limit = seconds;
}

void ControlState::set_waiting(const std::string& waits_for) {
  const std::lock_guard lock(mutex_);
  if (waits_for.empty()) ++progress_.moves;
  progress_.waits_for.assign(waits_for, 0, kLongestText);
}

RankProgress ControlState::progress() const {
  const std::lock_guard lock(mutex_);
  return progress_;
}

void ControlState::wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(wake_, &one, sizeof one);
}

void ControlState::post(Frame frame) {
  {
    const std::lock_guard lock(mutex_);
    posted_.push_back(std::move(frame));
  }
  wake();
}

std::vector<Frame> ControlState::take_posted() {
  uint64_t count = 0;
  [[maybe_unused]] const auto read = ::read(wake_, &count, sizeof count);
  const std::lock_guard lock(mutex_);
  return std::exchange(posted_, {});
}

template <class Ready>
void ControlState::wait(const char* whom, Ready ready) {
  std::unique_lock lock(mutex_);
  progress_.waits_for = whom;
  const auto over = [&] { return aborted() || ready(); };
  if (!while_waiting_) changed_.wait(lock, over);
  while (!changed_.wait_for(lock, kTurn, over)) {
    lock.unlock();
    while_waiting_();
    lock.lock();
  }
  progress_.waits_for.clear();
  ++progress_.moves;
  if (aborted()) throw CommError(message_);
}

void ControlState::wait_for_welcome() {
  wait("rank 0 to begin the job", [&] { return welcomed_; });
}

std::vector<std::string> ControlState::wait_for_texts(int64_t round) {
  wait("all ranks to come to an agreement", [&] { return round_ >= round; });
  const std::lock_guard lock(mutex_);
  return std::move(texts_);
}

std::string ControlState::wait_for_answer(int64_t question, double seconds) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::duration<double>(seconds),
                    [&] { return aborted() || answered_ == question; });
  return answered_ == question ? answer_ : "";
}

void ControlState::wait_for_all_finished() {
  wait(kWaitsForEnd, [&] { return all_finished_; });
}

bool ControlState::wait_for_abort(double seconds) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return aborted(); });
}

void ControlState::check() const {
  if (aborted()) throw CommError(message());
}

int64_t ControlState::origin() const {
  const std::lock_guard lock(mutex_);
  return origin_;
}

std::string ControlState::message() const {
  const std::lock_guard lock(mutex_);
  return message_;
}

std::vector<std::string> ControlState::hosts() const {
  const std::lock_guard lock(mutex_);
  return hosts_;
}

uint64_t ControlState::token() const {
  const std::lock_guard lock(mutex_);
  return token_;
}

void ControlState::stop() {
  stopping_ = true;
  wake();
}

void ControlState::abort(int64_t origin, const std::string& message) {
  const std::lock_guard lock(mutex_);
  if (aborted()) return;
  origin_ = origin;
  message_ = message.substr(0, kLongestMessage);
  aborted_at_ = steady_seconds();
  aborted_.store(true, std::memory_order_release);
  changed_.notify_all();
}

void ControlState::deliver(const Frame& frame) {
  if (frame.kind == FrameKind::abort) return abort(frame.numbers[0], frame.texts[0]);
  if (frame.kind == FrameKind::refuse) return abort(rank_, frame.texts[0]);
  const std::lock_guard lock(mutex_);
  switch (frame.kind) {
    case FrameKind::welcome:
      welcomed_ = true;
      token_ = static_cast<uint64_t>(frame.numbers[0]);
      hosts_ = frame.texts;
      break;
    case FrameKind::texts:
      round_ = frame.numbers[0];
      texts_ = frame.texts;
      break;
    case FrameKind::answer:
      answered_ = frame.numbers[0];
      answer_ = frame.texts[0];
      break;
    case FrameKind::all_finished:
      all_finished_ = true;
      break;
    default:
      fail<CommError>("rank 0 sent what only other ranks send on the control channel");
  }
  changed_.notify_all();
}

bool ControlState::stuck(double seconds) const {
  if (!aborted() || leaving_) return false;
  const std::lock_guard lock(mutex_);
  return steady_seconds() - aborted_at_ > seconds;
}

}  // namespace moesaic
