// Ranks that disagree, throw, leave or stay silent end every rank in time, in the words of thread ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "base/error.h"
#include "tcp_ranks.h"

namespace moesaic::test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::Not;

/// What each rank throws; `work` gets a communicator of all.
std::vector<std::string> thrown_by(ThreadWorld& world,
                                   const std::function<void(int64_t rank, Communicator&)>& work) {
  return on_threads(world, [&](int64_t rank) {
    TcpRank sockets(world, rank);
    const auto group = sockets.everyone();
    work(rank, *group);
  });
}

TEST(TcpFailures, DifferentSizesEndEveryRankAndNameBoth) {
  for (const int64_t bytes : {4, 400'000}) {  // brought along, and asked for
    ThreadWorld world(3, 10);
    const auto thrown = thrown_by(world, [&](int64_t rank, Communicator& group) {
      world.set_step(rank, 4);
      std::vector<std::byte> send(static_cast<size_t>(2 * bytes)), receive(send.size() * 3);
      complete(group.all_gather(group.take_sequence(), send.data(), receive.data(),
                                rank == 2 ? 2 * bytes : bytes));
    });
    EXPECT_THAT(thrown, Each(AllOf(HasSubstr(fmt::format("all_gather of {} bytes", 2 * bytes)),
                                   HasSubstr(fmt::format("all_gather of {} bytes", bytes)),
                                   HasSubstr("rank 2 (step 4"), HasSubstr(" called "))));
  }
}

TEST(TcpFailures, DifferentCollectivesRootsAndMessageSizesEndEveryRank) {
  for (int what = 0; what < 3; ++what) {
    ThreadWorld world(2, 10);
    const auto thrown = thrown_by(world, [&](int64_t rank, Communicator& group) {
      std::vector<float> send(8), receive(16);
      if (what == 0)
        complete(rank == 0
                     ? group.all_reduce(group.take_sequence(), send.data(), receive.data(), 4, DType::f32)
                     : group.all_to_all(group.take_sequence(), send.data(), receive.data(), 16));
      if (what == 1) complete(group.broadcast(group.take_sequence(), send.data(), receive.data(), 4, rank));
      if (what == 2)
        complete(rank ? group.receive(group.take_pair_sequence(0, 1), receive.data(), 8, 0)
                      : group.send(group.take_pair_sequence(0, 1), send.data(), 4, 1));
      ADD_FAILURE() << "complete";
    });
    const char* text[] = {"all_to_all of 16 bytes", "broadcast of 4 bytes from rank 1 of its group",
                          "message of 8 bytes"};
    EXPECT_THAT(thrown, Each(AllOf(HasSubstr(text[what]), HasSubstr("rank 0 ("), HasSubstr("rank 1 ("))));
  }
}

TEST(TcpFailures, ASilentRankEndsTheOthersInTimeByName) {
  ThreadWorld world(4, 0.4);
  const auto start = std::chrono::steady_clock::now();
  const auto thrown = thrown_by(world, [&](int64_t rank, Communicator& group) {
    world.set_step(rank, 7);
    world.set_operation(rank, rank == 2 ? "reading a file" : "all_reduce counts");
    if (rank == 2) {
      while (!world.aborted()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      world.check();
    }
    float send = 1, receive = 0;
    complete(group.all_reduce(group.take_sequence(), &send, &receive, 1, DType::f32));
  });
  EXPECT_THAT(thrown, Each(AllOf(HasSubstr("rank 2 (step 7, last operation: reading a file) stood still "
                                           "for 0.4 s while others waited"),
                                 HasSubstr("last operation: all_reduce counts; waits for rank 2 to join "
                                           "all_reduce number 1"))));
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), 5);
}

TEST(TcpFailures, ARankThatStopsInTheMiddleOfALargeCollectiveIsNamed) {
  ThreadWorld world(2, 0.5);
  const auto thrown = thrown_by(world, [&](int64_t rank, Communicator& group) {
    complete(group.barrier(group.take_sequence()));
    std::vector<float> send(16'000'000), receive(send.size());
    const Pending pending = group.all_to_all(group.take_sequence(), send.data(), receive.data(), 32'000'000);
    if (rank == 0) {
      for (int i = 0; i < 2 && !pending(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      while (!world.aborted()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    complete(pending);
  });
  EXPECT_THAT(thrown[1],
              AllOf(HasSubstr("rank 0 ("), HasSubstr("waits for rank 0 to join all_to_all number 2")));
}

TEST(TcpFailures, ASilentPeerOfAMessageIsNamed) {
  ThreadWorld world(3, 0.3);
  const auto thrown = thrown_by(world, [&](int64_t rank, Communicator& group) {
    float data = 1;
    if (rank == 0) complete(group.receive(group.take_pair_sequence(2, 0), &data, 4, 2));
    while (!world.aborted()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  });
  EXPECT_THAT(thrown[0], AllOf(HasSubstr("(last operation: start) stood still for 0.3 s"),
                               HasSubstr("waits for rank 2 to join message number 1")));
}

TEST(TcpFailures, AConnectionThatEndsIsNamedWhenNobodyElseSaysWhy) {
  // The control channel of these ranks knows nothing of processes that die.
  ThreadWorld world(2, 30);
  const auto start = std::chrono::steady_clock::now();
  const auto thrown = thrown_by(world, [&](int64_t rank, Communicator& group) {
    complete(group.barrier(group.take_sequence()));
    if (rank == 1) return;  // its sockets close
    complete(group.barrier(group.take_sequence()));
  });
  EXPECT_THAT(
      thrown[0],
      HasSubstr("rank 0 (last operation: start) lost its connection to rank 1 (last operation: start)"));
  EXPECT_EQ(thrown[1], "");
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), 10);
}

TEST(TcpFailures, ACollectiveThatIsLeftHalfDoneHarmsNobody) {
  // Its buffers are gone while the other rank still wants their content: that one is told, and nothing is read from there.
  ThreadWorld world(2, 30);
  const auto thrown = thrown_by(world, [&](int64_t rank, Communicator& group) {
    complete(group.barrier(group.take_sequence()));
    std::vector<float> receive(32'000'000);
    auto send = std::make_unique<std::vector<float>>(16'000'000, 1.0f);
    const uint64_t sequence = group.take_sequence();
    if (rank == 1) {
      const Pending pending = group.all_gather(sequence, send->data(), receive.data(), 64'000'000);
      world.all_gather(rank, "posted");
      complete(pending);
    }
    world.all_gather(rank, "posted");
    {
      const Pending pending = group.all_gather(sequence, send->data(), receive.data(), 64'000'000);
      EXPECT_FALSE(pending());  // finds the other's offer, and begins to send
    }
    send = nullptr;
    EXPECT_FALSE(group.barrier(sequence + 1)());
    while (!world.aborted()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  });
  EXPECT_THAT(thrown[1], HasSubstr("lost its connection to rank 0"));
}

TEST(TcpFailures, ARankFarAheadIsStopped) {
  ThreadWorld world(2, 30);
  const auto thrown = thrown_by(world, [&](int64_t rank, Communicator& group) {
    std::vector<std::byte> data(64 << 10);
    std::vector<Pending> pending;
    if (rank == 0) {
      for (int i = 0; i < 1200; ++i)  // more than 64 MiB that nobody has asked for
        pending.push_back(group.send(group.take_pair_sequence(0, 1), data.data(), 64 << 10, 1));
      for (const Pending& p : pending) complete(p);
      while (!world.aborted()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    } else {
      complete(group.receive(group.take_pair_sequence(1, 0) + 5000, data.data(), 1, 0));
    }
  });
  EXPECT_THAT(thrown[1], AllOf(HasSubstr("rank 0 ("), HasSubstr("collectives ahead of rank 1 (")));
}

}  // namespace
}  // namespace moesaic::test
