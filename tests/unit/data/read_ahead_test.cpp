#include "data/read_ahead.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <set>

#include "base/error.h"
#include "support/thrown.h"

namespace moesaic {
namespace {

using namespace std::chrono_literals;

Batch batch_of(std::span<const int64_t> positions) {
  Batch batch;
  for (const int64_t position : positions) batch.tokens.push_back(static_cast<int32_t>(position));
  batch.num_sequences = std::ssize(positions);
  return batch;
}

void expect_taken(ReadAhead& ahead, int64_t first) {
  const std::array<int64_t, 2> positions{first, first + 1};
  EXPECT_EQ(ahead.take(positions).tokens, batch_of(positions).tokens);
}

bool eventually(const std::function<bool()>& what) {
  for (int i = 0; i < 5000 && !what(); ++i) std::this_thread::sleep_for(1ms);
  return what();
}

TEST(ReadAhead, ReadsWhatComesNextAndNoMoreThanItsDepth) {
  std::mutex mutex;
  std::multiset<int64_t> read;
  const auto count = [&] {
    const std::lock_guard lock(mutex);
    return read.size();
  };
  ReadAhead ahead(
      [&](std::span<const int64_t> positions) {
        const std::lock_guard lock(mutex);
        read.insert(positions[0]);
        return batch_of(positions);
      },
      8, 3);
  std::this_thread::sleep_for(5ms);
  EXPECT_EQ(count(), 0u);  // nothing is expected yet
  for (int64_t i = 0; i < 10; ++i) {
    expect_taken(ahead, 100 + 8 * i);
    ASSERT_TRUE(eventually([&] { return count() == static_cast<size_t>(i) + 4; })) << i;
  }
  std::this_thread::sleep_for(5ms);
  EXPECT_EQ(count(), 13u);
  EXPECT_EQ(*read.rbegin(), 100 + 8 * 12);
  EXPECT_EQ(std::set<int64_t>(read.begin(), read.end()).size(), 13u);  // each once
}

TEST(ReadAhead, WaitsForAReadingThatIsUnderWayInsteadOfStartingAnother) {
  std::atomic<int> calls = 0;
  std::atomic<bool> open = false;
  ReadAhead ahead(
      [&](std::span<const int64_t> positions) {
        const bool first = calls++ == 0;
        EXPECT_TRUE(first || eventually([&] { return open.load(); }));
        return batch_of(positions);
      },
      2, 1);
  expect_taken(ahead, 0);
  ASSERT_TRUE(eventually([&] { return calls == 2; }));
  std::thread opener([&] {
    std::this_thread::sleep_for(10ms);
    open = true;
  });
  expect_taken(ahead, 2);
  EXPECT_TRUE(open);
  opener.join();
  ASSERT_TRUE(eventually([&] { return calls == 3; }));
}

TEST(ReadAhead, ARepeatedOrSkippedStepGetsItsOwnData) {
  ReadAhead ahead([](std::span<const int64_t> positions) { return batch_of(positions); }, 2, 2);
  for (const int64_t first : {0, 2, 4, 2, 4, 6, 8, 8, 100, 102, 0, 2, 4}) expect_taken(ahead, first);
  const std::array<int64_t, 1> shorter{6};
  EXPECT_EQ(ahead.take(shorter).tokens, batch_of(shorter).tokens);
  EXPECT_EQ(ahead.take({}).num_sequences, 0);
  expect_taken(ahead, 10);
}

TEST(ReadAhead, AnErrorIsThrownByTheStepThatNeedsTheData) {
  std::atomic<bool> broken = true;
  ReadAhead ahead(
      [&](std::span<const int64_t> positions) {
        require<IoError>(positions[0] != 6 || !broken, "position {} is damaged", positions[0]);
        return batch_of(positions);
      },
      2, 10);
  for (const int64_t first : {0, 2, 4}) expect_taken(ahead, first);
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(message_of<IoError>([&] { expect_taken(ahead, 6); }), "position 6 is damaged");
  broken = false;
  for (const int64_t first : {6, 8, 10}) expect_taken(ahead, first);
}

TEST(ReadAhead, EndsWhileReading) {
  std::atomic<int> inside = 0;
  {
    ReadAhead ahead(
        [&](std::span<const int64_t> positions) {
          ++inside;
          std::this_thread::sleep_for(2ms);
          return batch_of(positions);
        },
        2, 100);
    expect_taken(ahead, 0);
    ASSERT_TRUE(eventually([&] { return inside > 3; }));
  }
  const int at_end = inside;
  std::this_thread::sleep_for(10ms);
  EXPECT_EQ(inside, at_end);
}

}  // namespace
}  // namespace moesaic
