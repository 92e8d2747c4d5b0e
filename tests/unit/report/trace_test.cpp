#include "report/trace.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "support/temp_folder.h"

namespace moesaic {
namespace {

using nlohmann::json;

const std::vector<TraceEvent> kEvents{
    {"rms_norm", "attention", 0, "compute", 10, 12.5, 4096, 2048},
    {"all_to_all", "attention", 0, "comm", 12.5, 20, 8192, 0},
    {"all_to_all", "attention", 1, "comm", 12, 20, 8192, 0},
    {"matmul", "experts", 1, "compute", 20, 30, 100, 200},
};

// The events of one phase, by name.
std::vector<json> find(const json& trace, const std::string& phase, const std::string& name) {
  std::vector<json> found;
  for (const json& event : trace["traceEvents"])
    if (event["ph"] == phase && event["name"] == name) found.push_back(event);
  return found;
}

TEST(Trace, AnOpBecomesACompleteEventWithItsCost) {
  const json trace = json::parse(chrome_trace_json(kEvents));
  const auto norms = find(trace, "X", "rms_norm");
  ASSERT_EQ(norms.size(), 1u);
  EXPECT_EQ(norms[0]["ts"], 10);
  EXPECT_EQ(norms[0]["dur"], 2.5);
  EXPECT_EQ(norms[0]["pid"], 0);
  EXPECT_EQ(norms[0]["cat"], "attention");
  EXPECT_EQ(norms[0]["args"], (json{{"segment", "attention"}, {"bytes", 4096}, {"operations", 2048}}));
}

TEST(Trace, AStreamHasTheSameNamedRowOnEveryRank) {
  const json trace = json::parse(chrome_trace_json(kEvents));
  const auto exchanges = find(trace, "X", "all_to_all");
  ASSERT_EQ(exchanges.size(), 2u);
  EXPECT_EQ(exchanges[0]["tid"], exchanges[1]["tid"]);
  EXPECT_NE(exchanges[0]["pid"], exchanges[1]["pid"]);
  EXPECT_NE(exchanges[1]["tid"], find(trace, "X", "matmul").at(0)["tid"]);
  const auto rows = find(trace, "M", "thread_name");
  ASSERT_EQ(rows.size(), 4u);  // two streams of two ranks, each named once
  for (const json& row : rows) EXPECT_EQ(row["args"]["name"], row["tid"] == 0 ? "compute" : "comm");
  const auto ranks = find(trace, "M", "process_name");
  ASSERT_EQ(ranks.size(), 2u);
  EXPECT_EQ(ranks[1]["args"]["name"], "rank 1");
}

TEST(Trace, AnEmptyTraceAndOddNamesAreValidJson) {
  EXPECT_TRUE(json::parse(chrome_trace_json({}))["traceEvents"].empty());
  const json trace = json::parse(chrome_trace_json({{"a \"b\"\n\xff", "", 0, "s", 0, 0, 0, 0}}));
  EXPECT_EQ(trace["traceEvents"].back()["name"], "a \"b\"\n\xef\xbf\xbd");
}

TEST(Trace, WritesTheFileOrSaysWhyNot) {
  const TempFolder folder;
  write_chrome_trace(folder / "step_3.json", kEvents);
  EXPECT_EQ(slurp(folder / "step_3.json"), chrome_trace_json(kEvents));
  EXPECT_THROW(write_chrome_trace(folder / "none/step_3.json", kEvents), IoError);
}

}  // namespace
}  // namespace moesaic
