#include "report/page/run_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "report/event_log.h"
#include "report/trace.h"
#include "support/temp_folder.h"

namespace moesaic {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;
using testing::ThrowsMessage;

const std::string kLine = "{\"step\":0,\"loss\":1}\n";

TEST(ReadRun, FindsAllParts) {
  const TempFolder folder;
  spit(folder / "metrics.jsonl", kLine);
  spit(folder / "config.toml",
       "[train]\nsteps = 7\n\n[run]\nname = \"a = b\" \n# note\n[model.router]\nscore = \"softmax\"\n");
  EventLog(folder / "events.jsonl").write({EventKind::skip, 3, "why"});
  RunInfo info;
  info.model = "tiny";
  write_run_info(folder / "run.json", info);
  make_folders(folder / "traces");
  for (const int64_t step : {9, 20, 3})
    write_chrome_trace(folder / ("traces/step_" + std::to_string(step) + ".json"),
                       {{"a", "", step, "compute", 0, 1, 0, 0}});
  spit(folder / "traces/step_99.json.tmp", "no trace");
  const RunData run = read_run(folder.path() + "/", std::nullopt);
  EXPECT_THAT(run.notes, IsEmpty());
  EXPECT_TRUE(run.folder.ends_with("/" + run.name + "/"));
  EXPECT_EQ(run.metrics.size(), 1u);
  EXPECT_THAT(run.config, ElementsAre(Pair("train.steps", "7"), Pair("run.name", "\"a = b\""),
                                      Pair("model.router.score", "\"softmax\"")));
  EXPECT_EQ(run.setting("train.steps"), "7");
  EXPECT_EQ(run.setting("train.nothing"), "");
  ASSERT_EQ(run.events.size(), 1u);
  EXPECT_EQ(run.events[0].kind, "skip");
  EXPECT_EQ(run.events[0].message, "why");
  EXPECT_EQ(run.info->model, "tiny");
  EXPECT_EQ(run.trace_step, 20);
  EXPECT_EQ(run.timeline->ranks[0].rank, 20);
  EXPECT_EQ(read_run(folder.path(), 9).timeline->ranks[0].rank, 9);
  EXPECT_THAT(read_run(folder.path(), 4).notes, ElementsAre("there is no trace of step 4"));
}

TEST(ReadRun, OneDamagedFileTakesNothingElseWithIt) {
  const TempFolder folder;
  spit(folder / "metrics.jsonl", kLine + "garbage\n" + kLine + "{\"step\":1");
  spit(folder / "events.jsonl", "{\"step\":1,\"event\":\"stop\"}\n{\"step\":1.5e300,\"event\":\"x\"}\n{}\n" +
                                    std::string(1000, '[') + "\n{\"st");
  spit(folder / "run.json", "{");
  make_folders(folder / "traces");
  spit(folder / "traces/step_1.json", "{");
  const RunData run = read_run(folder.path(), std::nullopt);
  EXPECT_EQ(run.metrics.size(), 1u);
  EXPECT_EQ(run.events.size(), 1u);
  EXPECT_FALSE(run.info);
  EXPECT_FALSE(run.timeline);
  EXPECT_THAT(run.notes,
              ElementsAre("2 lines of metrics.jsonl could not be read and are left out",
                          "3 lines of events.jsonl could not be read and are left out",
                          HasSubstr("run.json is damaged"), HasSubstr("step_1.json cannot be shown")));
}

TEST(ReadRun, KeepsTheNewestOfVeryManyEvents) {
  const TempFolder folder;
  spit(folder / "metrics.jsonl", kLine);
  std::string text;
  for (size_t i = 0; i < RunData::kMaxEvents + 5; ++i)
    text += fmt::format("{{\"step\":{},\"event\":\"save\"}}\n", i);
  spit(folder / "events.jsonl", text);
  const RunData run = read_run(folder.path(), std::nullopt);
  EXPECT_EQ(run.events.size(), RunData::kMaxEvents);
  EXPECT_EQ(run.events.front().step, 5);
  EXPECT_EQ(run.events_left_out, 5);
}

TEST(ReadRun, AFolderThatIsNoRunsIsRefused) {
  const TempFolder folder;
  EXPECT_THAT([&] { read_run(folder / "none", std::nullopt); },
              ThrowsMessage<IoError>(HasSubstr(
                  "none is not the folder of a run: it holds neither metrics.jsonl nor config.toml")));
  spit(folder / "config.toml", "");
  EXPECT_EQ(read_run(folder.path(), std::nullopt).metrics.size(), 0u);
}

}  // namespace
}  // namespace moesaic
