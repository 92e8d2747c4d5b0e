#include "report/page/load_history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moesaic {
namespace {

using testing::ElementsAre;

TEST(LoadHistory, GivesLoadsOverTheMeanOfTheirLayer) {
  LoadHistory load;
  load.add(5, {{3, 1}, {0, 0}});
  load.add(6, {{2, 2}, {4, 0}});
  EXPECT_EQ(load.layers(), 2u);
  EXPECT_EQ(load.experts(), 2u);
  EXPECT_EQ(load.first(), 5);
  EXPECT_EQ(load.columns(), 2u);
  EXPECT_THAT(load.over_mean(0, 0), ElementsAre(1.5, 0.5));
  EXPECT_THAT(load.over_mean(1, 0), ElementsAre());  // nothing was routed
  EXPECT_THAT(load.over_mean(1, 1), ElementsAre(2, 0));
}

TEST(LoadHistory, JoinsColumnsInPairsAndLosesNothing) {
  LoadHistory load;
  const int64_t steps = 3 * static_cast<int64_t>(LoadHistory::kMaxColumns) + 1;
  for (int64_t s = 0; s < steps; ++s) load.add(s, {{s < 4 ? 3.0 : 1.0, 1}});
  EXPECT_EQ(load.width(), 4);
  EXPECT_EQ(load.columns(), static_cast<size_t>((steps + 3) / 4));
  EXPECT_THAT(load.over_mean(0, 0), ElementsAre(1.5, 0.5));
  for (size_t c = 1; c < load.columns(); ++c) ASSERT_THAT(load.over_mean(0, c), ElementsAre(1, 1)) << c;
}

TEST(LoadHistory, AGapOfStepsIsAColumnWithoutData) {
  LoadHistory load;
  load.add(0, {{1, 1}});
  load.add(2, {{1, 3}});
  EXPECT_EQ(load.columns(), 3u);
  EXPECT_TRUE(load.over_mean(0, 1).empty());
  load.add(int64_t{9'000'000'000'000'000}, {{1, 1}});  // a step far away costs no memory
  EXPECT_LE(load.columns(), LoadHistory::kMaxColumns);
  EXPECT_THAT(load.over_mean(0, 0), ElementsAre(2.0 / 3, 4.0 / 3));
}

TEST(LoadHistory, PassesOverOtherShapesAndHugeOnes) {
  LoadHistory load;
  load.add(0, {});
  load.add(0, {{}});
  load.add(0, {{1, 2}, {1}});
  load.add(0, std::vector<std::vector<double>>(LoadHistory::kMaxCells, {1, 1}));
  EXPECT_TRUE(load.empty());
  load.add(1, {{1, 1}});
  load.add(2, {{1, 1, 1}});
  load.add(0, {{1, 1}});
  EXPECT_EQ(load.columns(), 1u);
}

TEST(LoadLetter, IsAQuarterOfAPowerOfTwo) {
  EXPECT_EQ(load_letter(1), 'M');
  EXPECT_EQ(load_letter(2), 'Q');
  EXPECT_EQ(load_letter(0.5), 'I');
  EXPECT_EQ(load_letter(1.2), 'N');
  EXPECT_EQ(load_letter(64), 'Y');
  EXPECT_EQ(load_letter(1e-9), 'A');
  EXPECT_EQ(load_letter(0), '0');
  EXPECT_EQ(load_letter(-0.0 / 0.0), '.');
}

}  // namespace
}  // namespace moesaic
