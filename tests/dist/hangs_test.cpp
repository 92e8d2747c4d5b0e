// Whatever hangs, the job ends in time, and the message names the rank, its step and its operation: {stopped, endless loop,
// lost message, wrong order, mismatched size} x {start, dispatch, combine, reduction, step, save}, with ranks that are processes
// or threads. And what is only slow is left alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/rng.h"
#include "support/hang_run.h"

namespace moesaic::test {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

constexpr Fault kFaults[] = {Fault::stopped, Fault::loop, Fault::lost, Fault::order, Fault::size};

TEST(ChildOfHangs, DISABLED_Train) {
  as_child([](const std::string& what) { train_with_fault(what); });
}

constexpr const char* kChild = "ChildOfHangs.DISABLED_Train";

struct Case {
  int64_t processes;  // 1: threads of one
  Fault fault;
  Place place;
  bool stops() const { return fault == Fault::stopped; }
};

std::vector<Case> cases() {
  const bool all = std::getenv("MOESAIC_FULL_MATRIX") != nullptr;
  std::vector<Case> chosen;
  for (size_t f = 0; f < std::size(kFaults); ++f)
    for (size_t p = 0; p < std::size(kPlaces); ++p)
      for (const int64_t processes : {4, 1}) {
        const Case c{processes, kFaults[f], static_cast<Place>(p)};
        if (processes == 1 && c.stops()) continue;  // a signal stops all threads
        // Otherwise each fault once with processes and once with threads, and each place.
        if (all || (f + p) % 6 == (processes == 1 ? 3 : 0) || (processes == 4 && f == 1 && p == 1))
          chosen.push_back(c);
      }
  return chosen;
}

class Hangs : public testing::TestWithParam<Case> {};

TEST_P(Hangs, EndTheJobInTimeByName) {
  if (test_device() != DeviceKind::cpu) GTEST_SKIP() << "hosts of GPUs run ahead: other operations are named";
  const Case& c = GetParam();
  const PlaceInfo& place = place_of(c.place);
  const TempFolder folder;
  ProcessRanks ranks(c.processes, kChild, hang_text(c.fault, c.place, folder.path()));
  ASSERT_TRUE(ranks.wait(60, c.stops() ? 1 : 0));
  std::string told;
  double begin = 0;
  for (int64_t r = 0; r < c.processes; ++r) {
    begin = std::max(begin, fault_time(ranks.output(r)));
    told += ranks.output(r);
  }
  ASSERT_GT(begin, 0) << told;
  for (int64_t r = 0; r < c.processes; ++r) {
    if (c.stops() && r == kFaultyRank) continue;
    EXPECT_NE(ranks.code(r), kDone) << r;
    EXPECT_LT(ranks.ended(r) - begin, kSecondsToEnd) << r << "\n" << told;
  }
  // A rank that goes on after its fault is named with what it did last, or with the file that it could not write.
  const int64_t at = place.step + (c.fault == Fault::size && c.place == Place::save ? 1 : 0);
  const std::string step = at < 0 ? "(" : fmt::format("(step {}, ", at);
  const std::string rank_1 = fmt::format("rank {} {}", kFaultyRank, step);
  const std::string shard = fmt::format("step_{:08}.tmp/rank_00001.safetensors", kFaultyStep + 1);
  EXPECT_THAT(told, AnyOf(HasSubstr(rank_1), HasSubstr("ranks 0-1 " + step),
                          c.place == Place::save ? HasSubstr(shard) : HasSubstr(rank_1)));
  if (c.stops() || c.fault == Fault::loop) {
    EXPECT_THAT(told, HasSubstr(fmt::format("{}last operation: {})", rank_1, place.operation)));
  }
}

INSTANTIATE_TEST_SUITE_P(Table, Hangs, testing::ValuesIn(cases()),
                         [](const testing::TestParamInfo<Case>& tested) {
                           const Case& c = tested.param;
                           return fmt::format("{}_{}_{}", name_of(c.fault), place_of(c.place).name,
                                              c.processes > 1 ? "processes" : "threads");
                         });

TEST(ChildOfHangs, DISABLED_Slow) {
  as_child([](const std::string& what) {
    const int64_t num_steps = std::stoll(what);
    const Config config = hang_config();
    run_ranks(config.run, 4, [&](Rank& rank) {
      rank.control.set_time_limit(kHangLimit);
      Session session(config, rank);
      session.initialize();
      const auto me = static_cast<uint64_t>(rank.rank);
      uint64_t operation = 0;
      // Each operation takes one to four times 20 us longer; about 70 in a step.
      rank.device->set_status([&](const std::string& name) {
        rank.control.set_operation(name);
        const double micros = 20 * (1 + 3 * random_uniform(7, me, operation++));
        std::this_thread::sleep_for(std::chrono::duration<double, std::micro>(micros));
      });
      for (int64_t step = 0; step < num_steps; ++step) {
        rank.control.set_step(step);
        rank.control.barrier();
        session.step(random_source(config), step * config.train.global_batch, 0.1);
      }
    });
  });
}

class SlowRanks : public testing::TestWithParam<int64_t> {};

/// MOESAIC_SLOW_STEPS: how many steps; by default a few.
TEST_P(SlowRanks, AreLeftAlone) {
  const int64_t processes = GetParam();
  const char* asked = std::getenv("MOESAIC_SLOW_STEPS");
  const bool all = std::getenv("MOESAIC_FULL_MATRIX") != nullptr;
  ProcessRanks ranks(processes, "ChildOfHangs.DISABLED_Slow", asked != nullptr ? asked : all ? "1000" : "50");
  ASSERT_TRUE(ranks.wait(asked != nullptr ? 3600 : 250));
  for (int64_t r = 0; r < processes; ++r) EXPECT_EQ(ranks.code(r), kDone) << ranks.output(r);
}

INSTANTIATE_TEST_SUITE_P(Hangs, SlowRanks, testing::Values(4, 1),
                         [](const testing::TestParamInfo<int64_t>& tested) {
                           return tested.param > 1 ? "processes" : "threads";
                         });

}  // namespace
}  // namespace moesaic::test
