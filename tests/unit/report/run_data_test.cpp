#include "report/page/run_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/error.h"
#include "base/file.h"
#include "base/rng.h"
#include "report/event_log.h"
#include "report/metrics.h"
#include "report/page/page.h"
#include "report/trace.h"
#include "support/html_check.h"
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

TEST(ReadRun, TakesAnyDamageAndStillGivesAPage) {
  const TempFolder folder;
  const std::string names[] = {"metrics.jsonl", "events.jsonl", "run.json", "config.toml",
                               "traces/step_1.json"};
  make_folders(folder / "traces");
  StepMetrics m;
  m.expert_load = {{3, 1}, {2, 2}}, m.dropped = {1, 0}, m.memory_bytes = {{"parameters", 4096}},
  m.val_loss = 2;
  std::string lines;
  for (m.step = 0; m.step < 8; ++m.step) lines += to_json_line(m) + "\n";
  spit(folder / "metrics.jsonl", lines);
  EventLog(folder / "events.jsonl").write({EventKind::restart, 3, "why"});
  RunInfo info;
  info.memory = {{{"parameters", 4096}, {"buffers", 256}}};
  write_run_info(folder / "run.json", info);
  spit(folder / "config.toml", "[optim]\nclip = 1.0\n");
  write_chrome_trace(folder / "traces/step_1.json",
                     {{"a", "b", 0, "compute", 0, 1, 0, 0}, {"c", "d", 1, "comm", 0, 2, 0, 0}});
  const char* all = std::getenv("MOESAIC_FULL_MATRIX");
  const uint64_t trials = all != nullptr && std::string_view(all) == "1" ? 3000 : 60;
  constexpr std::string_view kBytes = "0123456789-+.eE[]{}:,\"\\<&/nul\n\xff";
  for (const std::string& name : names) {
    const std::string whole = slurp(folder / name);
    for (uint64_t trial = 0; trial < trials; ++trial) {
      uint64_t draw = 0;
      const auto random = [&](uint64_t bound) { return random_below(bound, 5, trial, draw++); };
      std::string damaged = whole;
      for (uint64_t i = 0; i < 1 + trial % 8; ++i)
        damaged[random(damaged.size())] = kBytes[random(kBytes.size())];
      if (trial % 4 == 0) damaged.resize(random(damaged.size()));
      spit(folder / name, damaged);
      const test::HtmlCheck page(report_page({read_run(folder.path(), std::nullopt)}, {}));
      ASSERT_EQ(page.problem, "") << name << ": " << damaged;
    }
    spit(folder / name, whole);
  }
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
