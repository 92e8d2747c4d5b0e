// Ranks that disagree, throw or stay silent end every rank in time, with a message that names rank, step and operation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "base/error.h"
#include "support/thread_ranks.h"

namespace moesaic::test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::Not;

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

TEST(Failures, DifferentSizesEndEveryRankAndNameBoth) {
  ThreadWorld world(3, 10);
  const auto thrown = on_threads(world, [&](int64_t rank) {
    const auto group = everyone(world, rank);
    world.set_step(rank, 4);
    std::vector<int32_t> send(8), receive(24);
    complete(group->all_gather(group->take_sequence(), send.data(), receive.data(), rank == 2 ? 8 : 4));
  });
  EXPECT_THAT(thrown, Each(AllOf(HasSubstr("all_gather of 8 bytes"), HasSubstr("all_gather of 4 bytes"),
                                 HasSubstr("rank 2 (step 4"))));
}

TEST(Failures, DifferentCollectivesEndEveryRankAndNameBoth) {
  ThreadWorld world(2, 10);
  const auto thrown = on_threads(world, [&](int64_t rank) {
    const auto group = everyone(world, rank);
    std::vector<float> send(8), receive(16);
    const uint64_t sequence = group->take_sequence();
    complete(rank == 0 ? group->all_reduce(sequence, send.data(), receive.data(), 4, DType::f32)
                       : group->all_to_all(sequence, send.data(), receive.data(), 16));
  });
  EXPECT_THAT(thrown, Each(AllOf(HasSubstr("all_reduce"), HasSubstr("all_to_all"), HasSubstr("rank 0"),
                                 HasSubstr("rank 1"))));
}

TEST(Failures, DifferentTypesRootsAndMessageSizesAreSeen) {
  for (int what = 0; what < 3; ++what) {
    ThreadWorld world(2, 10);
    const auto thrown = on_threads(world, [&](int64_t rank) {
      const auto group = everyone(world, rank);
      std::vector<float> send(8), receive(16);
      if (what == 0)
        complete(group->all_reduce(group->take_sequence(), send.data(), receive.data(), 4,
                                   rank ? DType::bf16 : DType::f32));
      if (what == 1) complete(group->broadcast(group->take_sequence(), send.data(), receive.data(), 4, rank));
      if (what == 2)
        complete(rank ? group->receive(group->take_pair_sequence(0, 1), receive.data(), 8, 0)
                      : group->send(group->take_pair_sequence(0, 1), send.data(), 4, 1));
    });
    EXPECT_THAT(thrown, Each(Not(""))) << what;
  }
}

TEST(Failures, ARankThatThrowsEndsTheOthersAtOnce) {
  ThreadWorld world(4, 60);
  std::vector<std::string> thrown;
  const double seconds = seconds_of([&] {
    thrown = on_threads(world, [&](int64_t rank) {
      const auto group = everyone(world, rank);
      if (rank == 1) throw std::runtime_error("rank 1 has had enough");
      float send = 1, receive = 0;
      complete(group->all_reduce(group->take_sequence(), &send, &receive, 1, DType::f32));
    });
  });
  EXPECT_THAT(thrown, Each("rank 1 has had enough"));
  EXPECT_LT(seconds, 5);
}

TEST(Failures, ASilentRankEndsTheOthersInTimeByName) {
  ThreadWorld world(4, 0.3);
  std::vector<std::string> thrown;
  const double seconds = seconds_of([&] {
    thrown = on_threads(world, [&](int64_t rank) {
      const auto group = everyone(world, rank);
      world.set_step(rank, 7);
      world.set_operation(rank, rank == 2 ? "reading a file" : "all_reduce counts");
      if (rank == 2) {
        while (!world.aborted()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
        world.check();
      }
      float send = 1, receive = 0;
      complete(group->all_reduce(group->take_sequence(), &send, &receive, 1, DType::f32));
    });
  });
  EXPECT_THAT(thrown, Each(AllOf(HasSubstr("rank 2 (step 7, last operation: reading a file) stood still "
                                           "for 0.3 s while others waited"),
                                 HasSubstr("last operation: all_reduce counts; waits for rank 2 to join "
                                           "all_reduce number 1"))));
  EXPECT_GE(seconds, 0.3);
  EXPECT_LT(seconds, 3);
}

TEST(Failures, ARankThatStaysBehindInAnEarlierCollectiveIsNamed) {
  // The others have offered as many collectives as a ring holds, and one more.
  ThreadWorld world(2, 0.3);
  const auto thrown = on_threads(world, [&](int64_t rank) {
    const auto group = everyone(world, rank);
    std::vector<Pending> pending;
    for (int i = 0; i < 65; ++i) {
      const uint64_t sequence = group->take_sequence();
      if (rank == 0 || i != 0) pending.push_back(group->barrier(sequence));
    }
    std::reverse(pending.begin(), pending.end());  // the youngest first
    for (Pending& p : pending) complete(p);
  });
  EXPECT_THAT(
      thrown,
      Each(HasSubstr("ranks 0-1 (last operation: start; waits for ranks 0-1 to be done with number 1)")));
}

TEST(Failures, ASilentPeerOfAMessageIsNamed) {
  ThreadWorld world(3, 0.2);
  const auto thrown = on_threads(world, [&](int64_t rank) {
    const auto group = everyone(world, rank);
    float data = 1;
    if (rank == 0) complete(group->receive(group->take_pair_sequence(2, 0), &data, 4, 2));
  });
  EXPECT_THAT(thrown[0], AllOf(HasSubstr("(last operation: start) stood still for 0.2 s"),
                               HasSubstr("waits for rank 2 to join message number 1")));
}

TEST(Failures, HostAgreementNamesWhoDidNotCome) {
  ThreadWorld world(3, 0.2);
  const auto thrown = on_threads(world, [&](int64_t rank) {
    world.set_operation(rank, "saving");
    if (rank != 1) world.all_gather(rank, "mine");
  });
  EXPECT_THAT(thrown[0], AllOf(HasSubstr("rank 1 (last operation: saving)"), HasSubstr("agreement")));
  EXPECT_EQ(thrown[2], thrown[0]);
}

TEST(Failures, TheFirstAbortWinsAndLaterCallsThrowIt) {
  ThreadWorld world(2, 10);
  world.abort("first");
  world.abort("second");
  EXPECT_EQ(world.message(), "first");
  const auto thrown = on_threads(world, [&](int64_t rank) {
    const auto group = everyone(world, rank);
    complete(group->barrier(group->take_sequence()));
  });
  EXPECT_THAT(thrown, Each("first"));
  EXPECT_THROW(world.all_gather(0, ""), CommError);
}

TEST(Agreement, ManyRoundsGiveEveryRankEverybodysText) {
  ThreadWorld world(4, 30);
  const auto thrown = on_threads(world, [&](int64_t rank) {
    for (int round = 0; round < 500; ++round) {
      const auto all = world.all_gather(rank, std::to_string(10 * round + static_cast<int>(rank)));
      for (int p = 0; p < 4; ++p) ASSERT_EQ(all[static_cast<size_t>(p)], std::to_string(10 * round + p));
    }
  });
  EXPECT_THAT(thrown, Each(""));
}

}  // namespace
}  // namespace moesaic::test
