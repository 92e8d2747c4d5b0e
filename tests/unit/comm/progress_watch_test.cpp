// Who is blamed, and when.
#include "comm/progress_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/rng.h"

namespace moesaic::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// Ranks of a job in step 3, each with a limit of 10 s, watched from time 0.
class Job {
 public:
  explicit Job(int64_t size) : ranks(static_cast<size_t>(size)), watch(size) {
    watch.begin(0);
    for (int64_t r = 0; r < size; ++r) works(r, "start", 0);
  }
  void works(int64_t rank, const std::string& operation, double now) {
    RankProgress& p = at(rank);
    p.status = {3, operation};
    p.waits_for.clear();
    ++p.moves;
    watch.update(rank, p, now);
  }
  void waits(int64_t rank, const std::string& whom, double now) {
    at(rank).waits_for = whom;
    watch.update(rank, at(rank), now);
  }
  void limit(int64_t rank, double seconds, double now) {
    at(rank).limit = seconds;
    watch.update(rank, at(rank), now);
  }
  RankProgress& at(int64_t rank) { return ranks[static_cast<size_t>(rank)]; }

  std::vector<RankProgress> ranks;
  ProgressWatch watch;
};

TEST(ProgressWatch, NobodyIsLateWhileNobodyWaits) {
  Job job(3);
  EXPECT_EQ(job.watch.overdue(1000), "");
}

TEST(ProgressWatch, NamesTheRankThatStandsStillAndWhatAllDidLast) {
  Job job(4);
  job.works(1, "dispatch", 1);
  for (int64_t r : {0, 2}) job.waits(r, "rank 1 to join all_gather number 5", 2);
  job.waits(3, "rank 2 to join barrier number 1", 2);  // no fault of rank 2
  EXPECT_EQ(job.watch.overdue(11.9), "");
  EXPECT_EQ(
      job.watch.overdue(12.1),
      "rank 1 (step 3, last operation: dispatch) stood still for 10 s while others waited: ranks 0, 2 (step "
      "3, "
      "last operation: start; waits for rank 1 to join all_gather number 5), rank 3 (step 3, last operation: "
      "start; waits for rank 2 to join barrier number 1)");
}

TEST(ProgressWatch, SlowIsNotStuck) {
  Job job(2);
  job.waits(0, "rank 1 to join barrier number 1", 0);
  for (double now = 1; now < 100; now += 9) {
    job.works(1, "the same", now);  // one operation after another
    EXPECT_EQ(job.watch.overdue(now + 8.9), "");
  }
  EXPECT_NE(job.watch.overdue(111), "");
}

TEST(ProgressWatch, TheClockStartsWhenSomebodyWaits) {
  Job job(2);
  job.works(1, "a long operation", 0);
  job.waits(0, "rank 1 to join barrier number 1", 50);
  EXPECT_EQ(job.watch.overdue(59), "");
  EXPECT_NE(job.watch.overdue(61), "");
}

TEST(ProgressWatch, ARankMaySetItsOwnLimit) {
  Job job(3);
  for (int64_t r : {0, 2}) job.waits(r, "all ranks to come to an agreement", 0);
  job.limit(1, 60, 0);  // writes a file
  EXPECT_EQ(job.watch.overdue(59), "");
  EXPECT_THAT(job.watch.overdue(61),
              HasSubstr("rank 1 (step 3, last operation: start) stood still for 60 s"));
}

TEST(ProgressWatch, AllRanksThatWaitForEachOtherAreTold) {
  Job job(2);
  job.waits(0, "rank 1 to join all_gather number 5", 1);
  job.waits(1, "rank 0 to join all_gather number 6", 3);
  EXPECT_EQ(job.watch.overdue(12), "");
  EXPECT_EQ(
      job.watch.overdue(14),
      "all ranks wait for each other, and nothing moved for 10 s: rank 0 (step 3, last operation: start; "
      "waits for "
      "rank 1 to join all_gather number 5), rank 1 (step 3, last operation: start; waits for rank 0 to join "
      "all_gather number 6)");
}

TEST(ProgressWatch, ARankThatHasEndedItsWorkIsMissed) {
  Job job(3);
  job.works(1, "end of its work", 1);
  job.waits(1, kWaitsForEnd, 1);
  job.works(0, "barrier", 1);
  EXPECT_EQ(job.watch.overdue(5), "");  // the others are at work
  job.waits(0, "rank 1 to join barrier number 5", 2);
  job.waits(2, "rank 1 to join barrier number 5", 2);
  EXPECT_THAT(job.watch.overdue(13),
              AllOf(HasSubstr("rank 1 (step 3, last operation: end of its work) will not come"),
                    HasSubstr("join barrier number 5"), Not(HasSubstr("stood still"))));
}

TEST(ProgressWatch, ARankThatDoesNotEndIsNamed) {
  Job job(2);
  job.works(0, "the last save", 1);
  job.waits(1, kWaitsForEnd, 2);
  EXPECT_EQ(job.watch.overdue(11), "");
  EXPECT_THAT(job.watch.overdue(13), HasSubstr("rank 0 (step 3, last operation: the last save) stood still"));
}

TEST(ProgressWatch, AWaitThatEndsStartsTheClockAnew) {
  Job job(2);
  job.waits(0, "rank 1 to join barrier number 1", 0);
  job.waits(1, "rank 0 to join barrier number 1", 0);
  job.waits(1, "", 9);
  EXPECT_EQ(job.watch.overdue(18), "");
  EXPECT_THAT(job.watch.overdue(20), HasSubstr("rank 1"));
}

TEST(ProgressWatch, RandomDelaysAreNoHang) {
  // 10,000 steps of one operation, one to four times as long as it might be, with a limit of five median steps and nothing else:
  // looked at whenever something happens, and just before.
  Job job(4);
  double now = 0;
  for (int64_t r = 0; r < 4; ++r) job.limit(r, 5 * 3.4, 0);
  for (uint64_t step = 0; step < 10'000; ++step) {
    std::vector<std::pair<double, int64_t>> ends;
    for (int64_t r = 0; r < 4; ++r) {
      job.works(r, "step", now);
      ends.emplace_back(now + 1 + 3 * random_uniform(9, step, static_cast<uint64_t>(r)), r);
    }
    std::sort(ends.begin(), ends.end());
    for (const auto& [end, rank] : ends) {
      ASSERT_EQ(job.watch.overdue(end), "") << step;
      job.waits(rank, "all ranks to join barrier", end);
      now = end;
    }
    ASSERT_EQ(job.watch.overdue(now), "") << step;
  }
}

TEST(ProgressWatch, AllThatHaveEndedIsNoFault) {
  Job job(2);
  for (int64_t r : {0, 1}) job.waits(r, kWaitsForEnd, 0);
  EXPECT_EQ(job.watch.overdue(1000), "");
}

}  // namespace
}  // namespace moesaic::test
