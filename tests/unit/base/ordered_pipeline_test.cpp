#include "base/ordered_pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>

#include "base/error.h"
#include "support/thrown.h"

namespace moesaic {
namespace {

/// Items 0 .. count-1, of which `slow` ones take long.
std::vector<int> run(int64_t threads, int count, const std::function<void(int)>& on_work) {
  int at = 0;
  std::vector<int> consumed;
  run_in_order<int, int>(
      threads, [&]() -> std::optional<int> { return at < count ? std::optional(at++) : std::nullopt; },
      [&](int item) {
        on_work(item);
        return item * 10;
      },
      [&](int result) { consumed.push_back(result / 10); });
  return consumed;
}

TEST(OrderedPipeline, ConsumesInTheOrderOfReadingWhateverTheThreads) {
  for (const int64_t threads : {1, 2, 5}) {
    const auto consumed = run(threads, 200, [](int item) {
      if (item % 7 == 0) std::this_thread::sleep_for(std::chrono::microseconds(300));
    });
    ASSERT_EQ(consumed.size(), 200u);
    for (int i = 0; i < 200; ++i) EXPECT_EQ(consumed[static_cast<size_t>(i)], i);
  }
  EXPECT_TRUE(run(3, 0, [](int) {}).empty());
}

TEST(OrderedPipeline, HoldsNoMoreThanItsWindow) {
  std::atomic<int> read{0}, consumed{0}, most{0};
  run_in_order<int, int>(
      3,
      [&]() -> std::optional<int> {
        most = std::max(most.load(), read.load() + 1 - consumed.load());
        return read < 100 ? std::optional(read++) : std::nullopt;
      },
      [&](int item) {
        if (item == 0)
          std::this_thread::sleep_for(std::chrono::milliseconds(50));  // all others must wait for it
        return item;
      },
      [&](int) { ++consumed; });
  EXPECT_EQ(consumed, 100);
  EXPECT_LE(most, 8);
  EXPECT_GE(most, 7);
}

TEST(OrderedPipeline, ReportsTheFirstFailureInOrder) {
  for (const int64_t threads : {1, 4})
    for (int round = 0; round < 20; ++round) {
      std::vector<int> consumed;
      int at = 0;
      EXPECT_EQ(message_of<IoError>([&] {
                  run_in_order<int, int>(
                      threads,
                      [&]() -> std::optional<int> {
                        require<IoError>(at < 12, "reading");
                        return at++;
                      },
                      [](int item) {
                        // The later one fails sooner.
                        if (item == 10) std::this_thread::sleep_for(std::chrono::milliseconds(1));
                        require<IoError>(item < 10, "item {}", item);
                        return item;
                      },
                      [&](int item) { consumed.push_back(item); });
                }),
                "item 10");
      EXPECT_EQ(consumed.size(), 10u);
    }
  EXPECT_EQ(message_of<IoError>([] {
              run_in_order<int, int>(
                  2, []() -> std::optional<int> { return 1; }, [](int item) { return item; },
                  [](int) { fail<IoError>("consuming"); });
            }),
            "consuming");
}

}  // namespace
}  // namespace moesaic
