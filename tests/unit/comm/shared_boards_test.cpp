// Groups whose boards lie in memory that processes share: who is reached, whose group is whose, who does not come. What collectives
// do there is in collectives_test.cpp, and between processes in tests/unit/launch/processes_test.cpp.
#include "comm/meeting/shared_boards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/threads/thread_control.h"
#include "support/thread_ranks.h"

namespace moesaic::test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(SharedBoards, ReachTheRanksOfTheirMachine) {
  ThreadWorld world(4, 5);
  const auto thrown = on_threads(world, [&](int64_t rank) {
    const SharedBoards boards(world.control(rank), rank % 2 == 0 ? "even" : "odd one");
    EXPECT_THAT(boards.neighbours(), ElementsAre(rank % 2, rank % 2 + 2));
    EXPECT_TRUE(boards.reaches({rank, (rank + 2) % 4}));
    EXPECT_FALSE(boards.reaches({0, 1}));
    world.control(rank).barrier();
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(SharedBoards, OfEachGroupAreItsOwn) {
  ThreadWorld world(3, 5);
  const auto thrown = on_threads(world, [&](int64_t rank) {
    SharedBoards boards(world.control(rank), "machine");
    const auto all = boards.group({0, 1, 2}), again = boards.group({0, 1, 2}),
               turned = boards.group({2, 1, 0});
    const auto write = [&](const std::vector<MemberBoard>& group, size_t member, int number) {
      group[member].notes()[0] = static_cast<std::byte>(number + rank);
    };
    const auto me = static_cast<size_t>(rank);
    write(all, me, 10), write(again, me, 20), write(turned, 2 - me, 30);
    world.control(rank).barrier();
    for (int r = 0; r < 3; ++r) {
      const auto at = static_cast<size_t>(r);
      EXPECT_EQ(static_cast<int>(all[at].notes()[0]), 10 + r);
      EXPECT_EQ(static_cast<int>(again[at].notes()[0]), 20 + r);
      EXPECT_EQ(static_cast<int>(turned[2 - at].notes()[0]), 30 + r);
    }
    world.control(rank).barrier();
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(SharedBoards, ARankThatDoesNotComeToItsGroupIsNamed) {
  ThreadWorld world(3, 0.3);
  const auto thrown = on_threads(world, [&](int64_t rank) {
    SharedBoards boards(world.control(rank), "machine");
    if (rank != 1) boards.group({0, 1, 2});
    world.set_operation(rank, "thinking");
    while (!world.aborted()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    world.check();
  });
  EXPECT_THAT(thrown, Each(AllOf(HasSubstr("rank 1 (last operation: thinking) stood still"),
                                 HasSubstr("waits for rank 1 to make a group"))));
}

TEST(SharedBoards, MemoryThatIsNotARanksIsRefused) {
  /// Says that it is another process, as one in another container might.
  class Mistaken : public ThreadControl {
   public:
    using ThreadControl::ThreadControl;

   protected:
    std::vector<std::string> all_gather_at(const std::string& where, const std::string& mine) override {
      return ThreadControl::all_gather_at(where, mine.empty() ? mine : "1 0" + mine.substr(mine.rfind(' ')));
    }
  };
  ThreadWorld world(2, 5);
  const auto thrown = on_threads(world, [&](int64_t rank) {
    Mistaken control(world, rank);
    const SharedBoards boards(control, "machine");
  });
  EXPECT_THAT(thrown,
              testing::Contains(AllOf(
                  HasSubstr("runs on this machine, but its shared memory (/proc/1/fd/0) could not be opened"),
                  HasSubstr("one user and in one container"))));
}

}  // namespace
}  // namespace moesaic::test
