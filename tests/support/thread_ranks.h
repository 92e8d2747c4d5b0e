#pragma once
// Thread ranks of one group, for tests of communication.
#include <exception>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "comm/communicator.h"
#include "comm/threads/thread_world.h"
#include "device/cpu/backoff.h"

namespace moesaic::test {

/// Runs `work(rank)` on a thread for each rank of `world`; a rank that throws ends the others. Returns what each rank threw
/// ("" = nothing).
inline std::vector<std::string> on_threads(ThreadWorld& world,
                                           const std::function<void(int64_t rank)>& work) {
  std::vector<std::string> thrown(static_cast<size_t>(world.size()));
  std::vector<std::thread> threads;
  for (int64_t r = 0; r < world.size(); ++r)
    threads.emplace_back([&, r] {
      try {
        work(r);
      } catch (const std::exception& error) {
        thrown[static_cast<size_t>(r)] = error.what();
        world.abort(error.what());
      }
    });
  for (std::thread& thread : threads) thread.join();
  return thrown;
}

/// This rank's end of the group of all ranks of `world`.
inline std::unique_ptr<Communicator> everyone(ThreadWorld& world, int64_t rank) {
  std::vector<int64_t> ranks(static_cast<size_t>(world.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return world.communicator(ranks, rank);
}

inline void complete(const Pending& pending) {
  for (Backoff backoff; !pending();) backoff.wait();
}

}  // namespace moesaic::test
