// Every collective over sockets gives, bit for bit, what it gives between threads: many at once, in different orders, small
// (which offers bring along) and large (which are asked for, and do not fit the system's buffers).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "support/random_collectives.h"
#include "tcp_ranks.h"

namespace moesaic::test {
namespace {

using testing::Each;

class TcpCollectives : public testing::TestWithParam<int64_t> {};

TEST_P(TcpCollectives, ManyAtOnceInAnyOrderEqualThoseOfThreads) {
  constexpr uint64_t kCalls = 80;
  ThreadWorld world(GetParam(), 60);
  std::atomic<int> wrong{0};
  const auto thrown = on_threads(world, [&](int64_t rank) {
    TcpRank sockets(world, rank);
    const auto tcp = sockets.everyone(), threads = everyone(world, rank);
    for (uint64_t round = 0; round < 2; ++round) {
      const auto a = run_collectives(*tcp, kCalls * round, kCalls, rank),
                 b = run_collectives(*threads, kCalls * round, kCalls, rank);
      for (size_t i = 0; i < a.size(); ++i) wrong += !same_bits(a[i], b[i]);
    }
    sockets.leave();
  });
  EXPECT_THAT(thrown, Each(""));
  EXPECT_EQ(wrong, 0);
}

INSTANTIATE_TEST_SUITE_P(Sizes, TcpCollectives, testing::Values(1, 2, 3, 5));

TEST(TcpCommunicators, OfOneGroupAndOfOthersAreIndependent) {
  ThreadWorld world(4, 20);
  const auto thrown = on_threads(world, [&](int64_t rank) {
    TcpRank sockets(world, rank);
    const std::vector<int64_t> row{rank / 2 * 2, rank / 2 * 2 + 1}, column{rank % 2, rank % 2 + 2};
    const std::unique_ptr<Communicator> groups[] = {sockets.group(row), sockets.group(row),
                                                    sockets.group(column), sockets.everyone()};
    EXPECT_EQ(groups[0]->rank(), rank % 2);
    EXPECT_EQ(groups[2]->rank(), rank / 2);
    for (int round = 0; round < 20; ++round) {
      std::array<std::array<int32_t, 4>, 4> all{};
      std::array<int32_t, 4> mine{};
      std::vector<Pending> pending;
      for (int i = 0; i < 4; ++i) {
        const auto g = static_cast<size_t>((i + rank + round) % 4);  // each rank begins with another group
        mine[g] = static_cast<int32_t>(100 * static_cast<int64_t>(g) + 10 * round + rank);
        pending.push_back(groups[g]->all_gather(groups[g]->take_sequence(), &mine[g], all[g].data(), 4));
      }
      for (const Pending& p : pending) complete(p);
      const auto value = [&](int64_t g, int64_t r) { return static_cast<int32_t>(100 * g + 10 * round + r); };
      for (int64_t i = 0; i < 2; ++i) {
        EXPECT_EQ(all[0][static_cast<size_t>(i)], value(0, row[static_cast<size_t>(i)]));
        EXPECT_EQ(all[1][static_cast<size_t>(i)], value(1, row[static_cast<size_t>(i)]));
        EXPECT_EQ(all[2][static_cast<size_t>(i)], value(2, column[static_cast<size_t>(i)]));
      }
      for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(all[3][static_cast<size_t>(i)], value(3, i));
    }
    sockets.leave();
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(TcpCommunicators, NeedNotBeMadeAtTheSameTime) {
  // Rank 1 comes late to a group whose collectives the others have posted already.
  ThreadWorld world(3, 20);
  const auto thrown = on_threads(world, [&](int64_t rank) {
    TcpRank sockets(world, rank);
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    const auto group = sockets.everyone();
    std::vector<float> send(200'000, static_cast<float>(rank)), receive(send.size());
    for (int round = 0; round < 3; ++round) {
      complete(group->all_reduce(group->take_sequence(), send.data(), receive.data(), 200'000, DType::f32));
      EXPECT_THAT(receive, Each(3.0f));
    }
    sockets.leave();
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(TcpCommunicators, TheSendBufferIsFreeOnceComplete) {
  ThreadWorld world(3, 30);
  const auto thrown = on_threads(world, [&](int64_t rank) {
    TcpRank sockets(world, rank);
    const auto group = sockets.everyone();
    for (const int64_t count : {1, 40'000}) {
      std::vector<int32_t> mine(static_cast<size_t>(count)), all(static_cast<size_t>(3 * count));
      for (int32_t round = 0; round < 100; ++round) {
        std::fill(mine.begin(), mine.end(), round + static_cast<int32_t>(rank));
        complete(group->all_gather(group->take_sequence(), mine.data(), all.data(), 4 * count));
        std::fill(mine.begin(), mine.end(), -1);
        for (int32_t p = 0; p < 3; ++p) ASSERT_EQ(all[static_cast<size_t>(p * count + count - 1)], round + p);
      }
    }
    sockets.leave();
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(TcpMesh, ClosesConnectionsOfStrangersAndGoesOn) {
  ThreadWorld world(2, 20);
  std::atomic<int> port{0};
  const auto thrown = on_threads(world, [&](int64_t rank) {
    ThreadControl control(world, rank);
    // Rank 0's port is found by listening to what it tells the others.
    class Listening : public ThreadControl {
     public:
      Listening(ThreadWorld& w, int64_t r, std::atomic<int>& p) : ThreadControl(w, r), port_(p) {}
      std::vector<std::string> all_gather_at(const std::string& where, const std::string& mine) override {
        auto all = ThreadControl::all_gather_at(where, mine);
        if (port_ == 0) port_ = std::stoi(all[0]);
        return all;
      }
      std::atomic<int>& port_;
    } listening(world, rank, port);
    const auto mesh = std::make_shared<tcp::TcpMesh>(listening, std::vector<std::string>(2, "127.0.0.1"), 42);
    std::vector<tcp::Socket> strangers;
    if (rank == 1)
      for (int i = 0; i < 5; ++i) {
        strangers.push_back(tcp::start_connect({"127.0.0.1", port}));
        tcp::wait_for(strangers.back(), true, 5);
        const std::string text(static_cast<size_t>(10 * i), 'x');
        strangers.back().send(text.data(), static_cast<int64_t>(text.size()));
      }
    const auto group = mesh->communicator({0, 1});
    for (int i = 0; i < 50; ++i) complete(group->barrier(group->take_sequence()));
    control.barrier();
    if (rank == 1) {
      char byte;
      tcp::wait_for(strangers[4], false, 5);
      EXPECT_EQ(strangers[4].receive(&byte, 1), -1);
    }
    control.barrier();
  });
  EXPECT_THAT(thrown, Each(""));
}

}  // namespace
}  // namespace moesaic::test
