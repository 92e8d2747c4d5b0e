#include "report/page/trace_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "report/trace.h"

namespace moesaic {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

const std::vector<TraceEvent> kEvents{
    {"norm", "attention", 0, "compute", 1000, 1010, 1, 2},
    {"exchange", "attention", 0, "comm", 1005, 1030, 3, 0},
    {"matmul", "experts", 0, "compute", 1020, 1040, 1, 2},
    {"norm", "attention", 1, "compute", 1001, 1011, 1, 2},
    {"exchange", "attention", 1, "comm", 1050, 1060, 3, 0},
};

TEST(ReadTrace, ReadsWhatARunWrites) {
  const Timeline t = parse_trace(chrome_trace_json(kEvents), "t");
  EXPECT_THAT(t.streams, ElementsAre("compute", "comm"));
  EXPECT_THAT(t.names, ElementsAre("norm", "exchange", "matmul"));
  EXPECT_THAT(t.segments, ElementsAre("attention", "experts"));
  EXPECT_EQ(t.num_ranks, 2);
  ASSERT_EQ(t.ranks.size(), 2u);
  EXPECT_DOUBLE_EQ(t.duration_us, 60);
  const auto& compute = t.ranks[0].streams[0];
  ASSERT_EQ(compute.size(), 2u);
  EXPECT_EQ(compute[1].begin, 20);
  EXPECT_EQ(compute[1].end, 40);
  EXPECT_EQ(t.names[static_cast<size_t>(compute[1].name)], "matmul");
}

TEST(ReadTrace, CountsBusyTimeOnceAndTimeThatComputeDoesNotHide) {
  const Timeline t = parse_trace(chrome_trace_json(kEvents), "t");
  EXPECT_EQ(t.compute_stream(), 0u);
  EXPECT_DOUBLE_EQ(t.ranks[0].busy_us(0), 30);
  EXPECT_DOUBLE_EQ(t.ranks[0].busy_us(1), 25);
  EXPECT_DOUBLE_EQ(t.ranks[0].exposed_us(0), 10);  // from 10 to 20
  EXPECT_DOUBLE_EQ(t.ranks[1].exposed_us(0), 10);
  RankTimeline nested;
  nested.streams = {{{0, 10}, {2, 5}, {8, 12}}};
  EXPECT_DOUBLE_EQ(nested.busy_us(0), 12);
}

TEST(ReadTrace, ThinsOutTheShortestFirst) {
  Timeline t = parse_trace(chrome_trace_json(kEvents), "t");
  t.thin(2);
  EXPECT_EQ(t.ranks[0].left_out, 1);
  EXPECT_EQ(t.ranks[0].streams[0].size(), 1u);
  EXPECT_EQ(t.ranks[0].streams[0][0].end, 40);
  EXPECT_EQ(t.ranks[1].left_out, 0);
  Timeline equal;
  equal.ranks.resize(1);
  equal.ranks[0].streams = {{{0, 1}, {1, 2}, {2, 3}, {3, 4}}};
  equal.thin(3);
  EXPECT_EQ(equal.ranks[0].streams[0].size(), 3u);
}

TEST(ReadTrace, KeepsTheFirstRanksAndCountsAll) {
  std::vector<TraceEvent> events;
  for (int64_t r = 0; r < 20; ++r) events.push_back({"a", "", r, "compute", 0, 1, 0, 0});
  const Timeline t = parse_trace(chrome_trace_json(events), "t");
  EXPECT_EQ(t.num_ranks, 20);
  EXPECT_EQ(t.ranks.size(), Timeline::kMaxRanks);
}

TEST(ReadTrace, TakesOtherWritersFormsAndPassesOverWhatItDoesNotKnow) {
  const Timeline t = parse_trace(
      R"([{"ph":"X","name":"a","ts":5,"dur":1,"args":{"name":"no","deep":{"ph":"M"}}},{"ph":"B","name":"b","ts":1},)"
      R"({"ph":"X","ts":"soon","dur":1},{"ph":"X","ts":1,"dur":-1},{"ph":"X","ts":1e300,"dur":1},{"ph":"X","pid":-5,"tid":1e99,"ts":6,"dur":1}])",
      "t");
  ASSERT_EQ(t.ranks.size(), 1u);
  ASSERT_EQ(t.ranks[0].streams.size(), 1u);
  EXPECT_THAT(t.streams, ElementsAre("row 0"));
  EXPECT_EQ(t.ranks[0].streams[0].size(), 2u);
  EXPECT_TRUE(parse_trace("{}", "t").ranks.empty());
  EXPECT_TRUE(parse_trace(chrome_trace_json({}), "t").ranks.empty());
}

TEST(ReadTrace, DamageIsAnIoErrorThatNamesTheFile) {
  const std::string whole = chrome_trace_json(kEvents);
  for (const std::string& bad : {std::string(), std::string("{"), whole.substr(0, whole.size() / 2),
                                 std::string(100000, '['), "{\"traceEvents\":[" + std::string(100000, '{')})
    EXPECT_THAT([&] { parse_trace(bad, "step_3.json"); },
                ThrowsMessage<IoError>(HasSubstr("step_3.json cannot be shown")))
        << bad.substr(0, 40);
}

}  // namespace
}  // namespace moesaic
