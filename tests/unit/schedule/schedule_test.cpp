#include "schedule/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "schedule/check.h"
#include "support/thrown.h"

namespace moesaic {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using enum ActionKind;

constexpr auto kKind = ScheduleKind::one_forward_one_backward;

// Two ranks, a chunk each, two micro-batches, the first with its backward in halves.
Schedule two_stages() {
  return {.num_chunks = 2,
          .num_micro_batches = 2,
          .ranks = {{{forward, 0, 0},
                     {send_activation, 0, 0, 1},
                     {forward, 0, 1},
                     {send_activation, 0, 1, 1},
                     {recv_gradient, 0, 0, 1},
                     {backward_input, 0, 0},
                     {backward_weight, 0, 0},
                     {recv_gradient, 0, 1, 1},
                     {backward, 0, 1},
                     {reduce, 0},
                     {step},
                     {gather, 0}},
                    {{recv_activation, 1, 0, 0},
                     {forward, 1, 0},
                     {backward_input, 1, 0},
                     {send_gradient, 1, 0, 0},
                     {backward_weight, 1, 0},
                     {recv_activation, 1, 1, 0},
                     {forward, 1, 1},
                     {backward, 1, 1},
                     {send_gradient, 1, 1, 0},
                     {reduce, 1},
                     {step},
                     {gather, 1}}}};
}

std::vector<std::string> problems(const Schedule& schedule) {
  return check_schedule(schedule).problems;
}

void erase(std::vector<Action>& actions, const Action& action) {
  const auto found = std::find(actions.begin(), actions.end(), action);
  ASSERT_NE(found, actions.end());
  actions.erase(found);
}
void swap(std::vector<Action>& actions, const Action& a, const Action& b) {
  std::iter_swap(std::find(actions.begin(), actions.end(), a), std::find(actions.begin(), actions.end(), b));
}

TEST(OneStage, RunsMicroBatchesInTurnThenReducesStepsAndGathers) {
  const Schedule schedule = make_schedule(kKind, 1, 1, 2);
  EXPECT_THAT(schedule.ranks, ElementsAre(ElementsAre(Action{forward, 0, 0}, Action{backward, 0, 0},
                                                      Action{forward, 0, 1}, Action{backward, 0, 1},
                                                      Action{reduce, 0}, Action{step}, Action{gather, 0})));
}

TEST(OneStage, ReducesAChunkAsSoonAsItsLastBackwardHasRun) {
  const Schedule schedule = make_schedule(kKind, 1, 2, 1);
  EXPECT_THAT(schedule.ranks.at(0), ElementsAre(Action{forward, 0}, Action{forward, 1}, Action{backward, 1},
                                                Action{reduce, 1}, Action{backward, 0}, Action{reduce, 0},
                                                Action{step}, Action{gather, 0}, Action{gather, 1}));
}

TEST(OneStage, IsSoundAndKeepsOneMicroBatch) {
  for (const int64_t chunks : {1, 2, 3}) {
    for (const int64_t micro_batches : {1, 2, 7}) {
      const ScheduleReport report = check_schedule(make_schedule(kKind, 1, chunks, micro_batches));
      EXPECT_THAT(report.problems, IsEmpty());
      EXPECT_THAT(report.max_in_flight, ElementsAre(chunks));
    }
  }
}

TEST(OneStage, RefusesWhatItCannotMake) {
  EXPECT_THAT(message_of([] { make_schedule(kKind, 2, 2, 1); }), HasSubstr("layout.pp = 2"));
  EXPECT_THAT(message_of([] { make_schedule(kKind, 1, 0, 1); }), HasSubstr("found 0 and 1"));
  EXPECT_THAT(message_of([] { make_schedule(kKind, 1, 1, 0); }), HasSubstr("found 1 and 0"));
}

TEST(Check, AcceptsTwoStagesAndBoundsTheirMemory) {
  const ScheduleReport report = check_schedule(two_stages());
  EXPECT_THAT(report.problems, IsEmpty());
  EXPECT_THAT(report.max_in_flight, ElementsAre(2, 1));
}

TEST(Check, AcceptsARankThatOwnsSeveralChunks) {
  // Chunks 0 and 2 on rank 0, chunk 1 on rank 1.
  const Schedule schedule{.num_chunks = 3,
                          .num_micro_batches = 1,
                          .ranks = {{{forward, 0, 0},
                                     {send_activation, 0, 0, 1},
                                     {recv_activation, 2, 0, 1},
                                     {forward, 2, 0},
                                     {backward, 2, 0},
                                     {send_gradient, 2, 0, 1},
                                     {reduce, 2},
                                     {recv_gradient, 0, 0, 1},
                                     {backward, 0, 0},
                                     {reduce, 0},
                                     {step},
                                     {gather, 0},
                                     {gather, 2}},
                                    {{recv_activation, 1, 0, 0},
                                     {forward, 1, 0},
                                     {send_activation, 1, 0, 0},
                                     {recv_gradient, 1, 0, 0},
                                     {backward, 1, 0},
                                     {send_gradient, 1, 0, 0},
                                     {reduce, 1},
                                     {step},
                                     {gather, 1}}}};
  EXPECT_THAT(problems(schedule), IsEmpty());
  EXPECT_THAT(check_schedule(schedule).max_in_flight, ElementsAre(2, 1));
}

TEST(Check, WeightHalfFreesTheMemory) {
  Schedule schedule = make_schedule(kKind, 1, 1, 2);
  schedule.ranks[0] = {{forward, 0, 0},
                       {backward_input, 0, 0},
                       {forward, 0, 1},
                       {backward_input, 0, 1},
                       {backward_weight, 0, 0},
                       {backward_weight, 0, 1},
                       {reduce, 0},
                       {step},
                       {gather, 0}};
  EXPECT_THAT(problems(schedule), IsEmpty());
  EXPECT_THAT(check_schedule(schedule).max_in_flight, ElementsAre(2));
}

TEST(Check, FindsASendWithoutReceiveAndTheReverse) {
  Schedule schedule = two_stages();
  erase(schedule.ranks[0], {recv_gradient, 0, 1, 1});
  EXPECT_THAT(problems(schedule),
              Contains("rank 1, send_gradient chunk 1 micro-batch 1 peer 0: rank 0 has no receive "
                       "for it"));
  schedule = two_stages();
  erase(schedule.ranks[0], {send_activation, 0, 1, 1});
  EXPECT_THAT(problems(schedule),
              ElementsAre("rank 1, recv_activation chunk 1 micro-batch 1 peer 0: rank 0 has no send "
                          "for it"));
}

TEST(Check, FindsMessagesThatCrossOver) {
  Schedule schedule = two_stages();
  swap(schedule.ranks[0], {forward, 0, 0}, {forward, 0, 1});
  swap(schedule.ranks[0], {send_activation, 0, 0, 1}, {send_activation, 0, 1, 1});
  EXPECT_THAT(problems(schedule),
              ElementsAre(HasSubstr("rank 1 receives recv_activation chunk 1 micro-batch 0")));
}

TEST(Check, FindsAWrongPeer) {
  Schedule schedule = two_stages();
  schedule.ranks.push_back({{step}});
  schedule.ranks[0][1].peer = 2;
  EXPECT_THAT(problems(schedule), Contains(HasSubstr("the other end is rank 1's")));
  schedule.ranks[0][1].peer = 0;
  EXPECT_THAT(problems(schedule), ElementsAre(HasSubstr("the peer must be another of 3 ranks")));
}

TEST(Check, FindsWorkOutOfOrder) {
  Schedule schedule = two_stages();
  swap(schedule.ranks[1], {recv_activation, 1, 0, 0}, {forward, 1, 0});
  EXPECT_THAT(problems(schedule),
              ElementsAre(HasSubstr("rank 1, forward chunk 1 micro-batch 0: its input is not there")));
  schedule = two_stages();
  swap(schedule.ranks[0], {recv_gradient, 0, 1, 1}, {backward, 0, 1});
  EXPECT_THAT(problems(schedule), ElementsAre(HasSubstr("the gradient of its output is not there yet")));
  schedule = two_stages();
  swap(schedule.ranks[0], {backward_input, 0, 0}, {backward_weight, 0, 0});
  EXPECT_THAT(problems(schedule), ElementsAre(HasSubstr("its input half has not run")));
  schedule = two_stages();
  swap(schedule.ranks[1], {forward, 1, 1}, {backward, 1, 1});
  EXPECT_THAT(problems(schedule),
              ElementsAre(HasSubstr("backward chunk 1 micro-batch 1: its forward has not run")));
  schedule = two_stages();
  swap(schedule.ranks[1], {backward, 1, 1}, {send_gradient, 1, 1, 0});
  EXPECT_THAT(problems(schedule),
              ElementsAre(HasSubstr("send_gradient chunk 1 micro-batch 1 peer 0: its backward")));
  schedule = two_stages();
  swap(schedule.ranks[0], {forward, 0, 0}, {send_activation, 0, 0, 1});
  EXPECT_THAT(problems(schedule),
              ElementsAre(HasSubstr("send_activation chunk 0 micro-batch 0 peer 1: its forward")));
}

TEST(Check, FindsWorkDoneTwiceOrNeverOrElsewhere) {
  Schedule schedule = make_schedule(kKind, 1, 1, 2);
  schedule.ranks[0].insert(schedule.ranks[0].begin(), {forward, 0, 0});
  EXPECT_THAT(problems(schedule), Contains(HasSubstr("it has run before")));
  schedule = make_schedule(kKind, 1, 1, 2);
  schedule.ranks[0].insert(schedule.ranks[0].begin() + 2, {backward, 0, 0});
  EXPECT_THAT(problems(schedule), Contains(HasSubstr("it has run before")));
  schedule = make_schedule(kKind, 1, 1, 2);
  erase(schedule.ranks[0], {backward, 0, 1});
  EXPECT_THAT(problems(schedule), Contains("rank 0 leaves a micro-batch of chunk 0 unfinished"));
  schedule = two_stages();
  schedule.ranks[1].insert(schedule.ranks[1].begin(), {forward, 0, 0});
  EXPECT_THAT(problems(schedule), Contains(HasSubstr("the chunk already runs on rank 0")));
  schedule = make_schedule(kKind, 1, 1, 1);
  schedule.num_chunks = 2;
  EXPECT_THAT(problems(schedule), ElementsAre("chunk 1 runs on no rank"));
}

TEST(Check, FindsReduceStepAndGatherOutOfOrder) {
  Schedule schedule = make_schedule(kKind, 1, 1, 2);
  swap(schedule.ranks[0], {backward, 0, 1}, {reduce, 0});
  EXPECT_THAT(problems(schedule), ElementsAre(HasSubstr("reduce chunk 0: not all of the chunk's backwards")));
  schedule = make_schedule(kKind, 1, 1, 2);
  swap(schedule.ranks[0], {reduce, 0}, {step});
  EXPECT_THAT(problems(schedule), ElementsAre(HasSubstr("step: chunk 0 is not reduced")));
  schedule = make_schedule(kKind, 1, 1, 2);
  swap(schedule.ranks[0], {gather, 0}, {step});
  EXPECT_THAT(problems(schedule), ElementsAre(HasSubstr("gather chunk 0: the step has not run")));
  schedule = make_schedule(kKind, 1, 1, 2);
  erase(schedule.ranks[0], {step});
  EXPECT_THAT(problems(schedule), Contains("rank 0 steps 0 times, not once"));
  schedule = make_schedule(kKind, 1, 1, 2);
  schedule.ranks[0].push_back({gather, 0});
  EXPECT_THAT(problems(schedule), ElementsAre(HasSubstr("gathers it 2 times")));
}

TEST(Check, FindsRanksThatWaitForEachOther) {
  // Rank 0 waits for micro-batch 0's gradient before it sends micro-batch 1; rank 1 wants both before it
  // starts.
  Schedule schedule = two_stages();
  auto& first = schedule.ranks[0];
  const Action late{send_activation, 0, 1, 1};
  erase(first, late);
  first.insert(std::find(first.begin(), first.end(), Action{recv_gradient, 0, 0, 1}) + 1, late);
  EXPECT_THAT(problems(schedule), IsEmpty());
  auto& second = schedule.ranks[1];
  const Action early{recv_activation, 1, 1, 0};
  erase(second, early);
  second.insert(second.begin() + 1, early);
  EXPECT_THAT(problems(schedule),
              ElementsAre(HasSubstr("rank 0, recv_gradient chunk 0 micro-batch 0 peer 1: waits"),
                          HasSubstr("rank 1, recv_activation chunk 1 micro-batch 1 peer 0: waits")));
}

TEST(Check, FindsNumbersOutsideTheSchedule) {
  Schedule schedule = make_schedule(kKind, 1, 1, 1);
  schedule.ranks[0][0].chunk = 1;
  EXPECT_THAT(problems(schedule), ElementsAre(HasSubstr("there are 1 chunks")));
  schedule = make_schedule(kKind, 1, 1, 1);
  schedule.ranks[0][0].micro_batch = -1;
  EXPECT_THAT(problems(schedule), ElementsAre(HasSubstr("there are 1 micro-batches")));
  schedule = two_stages();
  schedule.ranks[1].push_back({send_activation, 1, 0, 0});
  EXPECT_THAT(problems(schedule), ElementsAre(HasSubstr("there is no chunk 2")));
}

}  // namespace
}  // namespace moesaic
