#pragma once
// Work on items in parallel, results in the order of the items: the outcome does not depend on how many threads there are.
//
//   run_in_order<Block, Tokens>(8, [&] { return reader.next(); }, [&](Block block) { return encode(block); },
//                               [&](Tokens tokens) { writer.append(tokens); });
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <variant>
#include <vector>

namespace moesaic {

template <class Item, class Result>
class OrderedPipeline {
 public:
  using Next = std::function<std::optional<Item>()>;
  using Work = std::function<Result(Item)>;
  using Consume = std::function<void(Result)>;

  OrderedPipeline(int64_t num_threads, Next next, Work work, Consume consume)
      : num_threads_(num_threads),
        window_(2 * num_threads + 2),
        next_(std::move(next)),
        work_(std::move(work)),
        consume_(std::move(consume)) {}

  void run() {
    std::vector<std::jthread> helpers;
    for (int64_t i = 1; i < num_threads_; ++i) helpers.emplace_back([this] { serve(); });
    serve();
    helpers.clear();
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  using Outcome = std::variant<Result, std::exception_ptr>;

  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return ended_ || (!reading_ && num_read_ < num_consumed_ + window_); });
      if (ended_) return;
      reading_ = true;
      lock.unlock();
      std::optional<Item> item;
      std::optional<Outcome> outcome;  // of the reading, if that failed
      try {
        item = next_();
      } catch (...) {
        outcome = std::current_exception();
      }
      lock.lock();
      reading_ = false;
      ended_ = ended_ || !item;
      const int64_t index = num_read_;
      num_read_ += item || outcome ? 1 : 0;
      changed_.notify_all();
      lock.unlock();
      if (item) outcome = work(std::move(*item));
      lock.lock();
      if (!outcome) return;
      done_.emplace(index, std::move(*outcome));
      consume(lock);
    }
  }

  Outcome work(Item item) {
    try {
      return work_(std::move(item));
    } catch (...) {
      return std::current_exception();
    }
  }

  /// Consumes all that is next in order, unless another thread is at it. The first failure in order is the one that counts.
  void consume(std::unique_lock<std::mutex>& lock) {
    if (consuming_) return;
    consuming_ = true;
    while (!failure_ && !done_.empty() && done_.begin()->first == num_consumed_) {
      Outcome outcome = std::move(done_.extract(done_.begin()).mapped());
      lock.unlock();
      std::exception_ptr failure;
      try {
        if (auto* error = std::get_if<std::exception_ptr>(&outcome)) std::rethrow_exception(*error);
        consume_(std::move(std::get<Result>(outcome)));
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      ++num_consumed_;
      failure_ = failure;
      ended_ = ended_ || failure;
      changed_.notify_all();
    }
    consuming_ = false;
  }

  const int64_t num_threads_, window_;  // items between reading and consuming
  Next next_;
  Work work_;
  Consume consume_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int64_t, Outcome> done_;  // waiting for their turn
  int64_t num_read_ = 0, num_consumed_ = 0;
  bool reading_ = false, consuming_ = false, ended_ = false;
  std::exception_ptr failure_;
};

/// Runs `next` (one call at a time, until it gives nothing), `work` (on num_threads >= 1 threads, the caller's among them)
/// and `consume` (one call at a time, in the order of `next`). At most 2 * num_threads + 2 items are held. Rethrows what
/// comes first in that order, whichever of the three threw it; later items are then not consumed.
template <class Item, class Result>
void run_in_order(int64_t num_threads, std::function<std::optional<Item>()> next,
                  std::function<Result(Item)> work, std::function<void(Result)> consume) {
  OrderedPipeline<Item, Result>(num_threads, std::move(next), std::move(work), std::move(consume)).run();
}

}  // namespace moesaic
