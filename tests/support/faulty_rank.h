#pragma once
// A rank that fails on purpose, once, at an operation named by the test: it throws, is killed or stopped, sleeps or loops for
// ever, leaves out its part of a collective or of an agreement, takes two in the wrong order, or calls one with another size.
// Everything else is passed on.
#include <signal.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "launch/launch.h"

namespace moesaic::test {

enum class Fault { none, thrown, killed, sleep, stopped, loop, lost, order, size };
inline const char* name_of(Fault fault) {
  static constexpr const char* kNames[] = {"none", "thrown", "killed", "sleep", "stopped",
                                           "loop", "lost",   "order",  "size"};
  return kNames[static_cast<size_t>(fault)];
}

/// What goes wrong where: at the first operation of this name that begins in this step.
struct Injection {
  Fault fault = Fault::none;
  std::string operation;
  int64_t step = 0;
};

/// Said to standard error when it happens, with the time by the machine's steady clock.
inline constexpr const char* kFaultAt = "fault at ";

/// What is left of an injection. Used by the rank's thread alone.
class FaultState {
 public:
  explicit FaultState(Injection injection) : injection_(std::move(injection)) {}
  void set_step(int64_t step) { step_ = step; }
  void reach(const std::string& operation) {
    if (injection_.fault == Fault::none || step_ != injection_.step || operation != injection_.operation)
      return;
    const std::chrono::duration<double> now = std::chrono::steady_clock::now().time_since_epoch();
    std::fprintf(stderr, "%s%.3f\n", kFaultAt, now.count());
    pending_ = std::exchange(injection_.fault, Fault::none);
    if (pending_ == Fault::thrown) throw std::runtime_error("on purpose");
    if (pending_ == Fault::killed || pending_ == Fault::stopped) {
      // What a rank does is heard of ten times a second.
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      ::raise(pending_ == Fault::killed ? SIGKILL : SIGSTOP);
    }
    if (pending_ == Fault::sleep) std::this_thread::sleep_for(std::chrono::hours(1));
    if (pending_ == Fault::loop)
      for (volatile uint64_t turns = 0;;) turns = turns + 1;
  }
  bool take(Fault fault) { return pending_ == fault && std::exchange(pending_, Fault::none) == fault; }

 private:
  Injection injection_;
  int64_t step_ = -1;
  Fault pending_ = Fault::none;
};

class FaultyCommunicator : public Communicator {
 public:
  FaultyCommunicator(std::unique_ptr<Communicator> inner, FaultState& state)
      : inner_(std::move(inner)), state_(state) {}
  int64_t rank() const override { return inner_->rank(); }
  int64_t size() const override { return inner_->size(); }
  uint64_t take_sequence() override {
    if (kept_ > 0) return std::exchange(kept_, 0);
    const uint64_t sequence = inner_->take_sequence();
    if (!state_.take(Fault::order)) return sequence;
    kept_ = sequence;  // this collective comes after the next one
    return inner_->take_sequence();
  }
  uint64_t take_pair_sequence(int64_t source, int64_t destination) override {
    return inner_->take_pair_sequence(source, destination);
  }
  Pending all_gather(const Call& call, const void* send, void* recv, int64_t bytes) override {
    return lost() ? done() : inner_->all_gather(call, send, recv, sized(bytes));
  }
  Pending reduce_scatter(const Call& call, const void* send, void* recv, int64_t count, DType type) override {
    return lost() ? done() : inner_->reduce_scatter(call, send, recv, sized(count), type);
  }
  Pending all_reduce(const Call& call, const void* send, void* recv, int64_t count, DType type) override {
    return lost() ? done() : inner_->all_reduce(call, send, recv, sized(count), type);
  }
  Pending all_to_all(const Call& call, const void* send, void* recv, int64_t bytes) override {
    return lost() ? done() : inner_->all_to_all(call, send, recv, sized(bytes));
  }
  Pending exchange_parts(const Call& call, const void* send, void* recv, int64_t bytes) override {
    return lost() ? done() : inner_->exchange_parts(call, send, recv, sized(bytes));
  }
  Pending all_to_all_blocks(const Call& call, const void* send, void* recv,
                            const std::vector<BlockCopy>& copies) override {
    return lost() ? done() : inner_->all_to_all_blocks(call, send, recv, copies);
  }
  Pending all_to_all_rows(const Call& call, const void* send, const int32_t* send_offsets, void* recv,
                          const int32_t* recv_offsets, int64_t recv_rows, int64_t row_bytes) override {
    if (lost()) return done();
    return inner_->all_to_all_rows(call, send, send_offsets, recv, recv_offsets, recv_rows, sized(row_bytes));
  }
  Pending broadcast(const Call& call, const void* send, void* recv, int64_t bytes, int64_t root) override {
    return lost() ? done() : inner_->broadcast(call, send, recv, sized(bytes), root);
  }
  Pending barrier(const Call& call) override { return lost() ? done() : inner_->barrier(call); }
  Pending send(const Call& call, const void* data, int64_t bytes, int64_t destination) override {
    return lost() ? done() : inner_->send(call, data, sized(bytes), destination);
  }
  Pending receive(const Call& call, void* data, int64_t bytes, int64_t source) override {
    return lost() ? done() : inner_->receive(call, data, sized(bytes), source);
  }

 private:
  static Pending done() {
    return [] { return true; };
  }
  bool lost() { return state_.take(Fault::lost); }
  int64_t sized(int64_t count) { return state_.take(Fault::size) ? count / 2 : count; }

  std::unique_ptr<Communicator> inner_;
  FaultState& state_;
  uint64_t kept_ = 0;
};

/// Agreements: a lost one is passed over as if all had agreed, one out of order is another one. Their texts have no size to agree
/// on: that fault waits for the next collective.
class FaultyControl : public Control {
 public:
  FaultyControl(Control& inner, FaultState& state) : inner_(inner), state_(state) {}
  int64_t rank() const override { return inner_.rank(); }
  int64_t size() const override { return inner_.size(); }
  void set_step(int64_t step) override {
    inner_.set_step(step);
    state_.set_step(step);
  }
  void set_operation(const std::string& operation) override {
    inner_.set_operation(operation);
    state_.reach(operation);
  }
  void set_time_limit(double seconds) override { inner_.set_time_limit(seconds); }
  void set_waiting(const std::string& waits_for) override { inner_.set_waiting(waits_for); }
  std::string describe(int64_t rank) override { return inner_.describe(rank); }
  void abort(const std::string& message) override { inner_.abort(message); }
  void check() const override { inner_.check(); }

 protected:
  std::vector<std::string> all_gather_at(const std::string& where, const std::string& mine) override {
    if (state_.take(Fault::lost)) return std::vector<std::string>(static_cast<size_t>(size()), mine);
    if (state_.take(Fault::order)) return inner_.all_gather(mine, "another.cpp", 1);
    return inner_.all_gather(mine, where.c_str(), 0);
  }

 private:
  Control& inner_;
  FaultState& state_;
};

/// Takes over a rank's device.
class FaultyRank {
 public:
  FaultyRank(Rank& real, const Injection& injection)
      : state_(injection),
        control_(real.control, state_),
        rank{.rank = real.rank,
             .world_size = real.world_size,
             .control = control_,
             .device = std::move(real.device),
             .communicator = [this,
                              &real](const std::vector<int64_t>& ranks) -> std::unique_ptr<Communicator> {
               return std::make_unique<FaultyCommunicator>(real.communicator(ranks), state_);
             }} {
    rank.device->set_status([this](const std::string& operation) { control_.set_operation(operation); });
  }
  FaultyRank(const FaultyRank&) = delete;
  FaultyRank& operator=(const FaultyRank&) = delete;

 private:
  FaultState state_;
  FaultyControl control_;

 public:
  Rank rank;
};

}  // namespace moesaic::test
