#pragma once
// Batches read before they are asked for, by a thread of its own, so that a step does not wait for data.
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "data/loader.h"

namespace moesaic {

/// Expects each batch to be asked for `stride` positions behind the one before. What is asked for instead (a step is
/// repeated) is read at once, and expectations go on from there: a wrong guess costs time, never changes a batch.
class ReadAhead {
 public:
  using Source = std::function<Batch(std::span<const int64_t> positions)>;

  /// Holds at most `depth` (>= 1) batches. `source` is called from two threads, at times together, and must be a pure
  /// function of the positions.
  ReadAhead(Source source, int64_t stride, int64_t depth);
  /// Waits for the reading that is under way.
  ~ReadAhead();
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  /// source(positions). What the reading threw is thrown here, by the call that needs the batch. One caller at a time.
  Batch take(std::span<const int64_t> positions);

 private:
  struct Ready {
    std::vector<int64_t> positions;
    Batch batch;
    std::exception_ptr error;
  };
  void read();
  bool expects(std::span<const int64_t> positions) const;
  void aim_behind(std::span<const int64_t> positions);

  const Source source_;
  const int64_t stride_, depth_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Ready> ready_;    // in the order of reading
  std::vector<int64_t> next_;  // read next, or being read; empty: nothing is expected
  int64_t aim_ = 0;            // counts changes of aim: what was read for an older one is dropped
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace moesaic
