#include "report/jsonl.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "report/event_log.h"
#include "support/temp_folder.h"

namespace moesaic {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(JsonLines, AppendsAcrossOpeningsAndIsReadableAtOnce) {
  const TempFolder folder;
  JsonLinesFile first(folder / "a.jsonl");
  first.write(R"({"step":0})");
  EXPECT_EQ(slurp(folder / "a.jsonl"), "{\"step\":0}\n");
  JsonLinesFile second(folder / "a.jsonl");
  second.write(R"({"step":1})");
  EXPECT_EQ(slurp(folder / "a.jsonl"), "{\"step\":0}\n{\"step\":1}\n");
}

TEST(JsonLines, AnUnfinishedLastLineIsCutBeforeAppending) {
  const TempFolder folder;
  for (const size_t length :
       {size_t{3}, size_t{70000}}) {  // within one block of the backward search, and beyond
    spit(folder / "a.jsonl", "{\"step\":0}\n" + std::string(length, 'x'));
    JsonLinesFile(folder / "a.jsonl").write(R"({"step":1})");
    EXPECT_EQ(slurp(folder / "a.jsonl"), "{\"step\":0}\n{\"step\":1}\n");
  }
  spit(folder / "b.jsonl", "{\"st");
  JsonLinesFile(folder / "b.jsonl").write(R"({"step":1})");
  EXPECT_EQ(slurp(folder / "b.jsonl"), "{\"step\":1}\n");
}

TEST(JsonLines, AMissingFolderIsAnIoError) {
  const TempFolder folder;
  EXPECT_THAT([&] { JsonLinesFile(folder / "none/a.jsonl"); },
              ThrowsMessage<IoError>(HasSubstr("none/a.jsonl")));
}

TEST(JsonLines, ALineThatTheSystemRefusesIsAnIoErrorThatNamesTheFile) {
  const TempFolder folder;
  JsonLinesFile file(folder / "a.jsonl");
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = 4;  // stands for a full disk
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_THAT([&] { file.write(R"({"step":0})"); }, ThrowsMessage<IoError>(HasSubstr("a.jsonl")));
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, old_handler);
}

TEST(CutFromStep, RemovesTheStepAndAllAfterIt) {
  const TempFolder folder;
  const auto path = folder / "metrics.jsonl";
  const std::string lines = "{\"step\":0,\"x\":1}\n{\"step\":5}\n{\"step\":9,\"x\":[1,2]}\n{\"step\":10}\n";
  const auto cut = [&](int64_t step, const std::string& tail = "") {
    spit(path, lines + tail);
    cut_from_step(path, step);
    return slurp(path);
  };
  EXPECT_EQ(cut(9), "{\"step\":0,\"x\":1}\n{\"step\":5}\n");
  EXPECT_EQ(cut(6), "{\"step\":0,\"x\":1}\n{\"step\":5}\n");
  EXPECT_EQ(cut(0), "");
  EXPECT_EQ(cut(11), lines);
  EXPECT_EQ(cut(11, "{\"step\":1"), lines);  // killed while writing step 11
  cut_from_step(folder / "absent.jsonl", 3);
  EXPECT_FALSE(std::filesystem::exists(folder / "absent.jsonl"));
}

TEST(CutFromStep, RefusesAFileThatIsNotOursAndLeavesItAlone) {
  const TempFolder folder;
  const auto path = folder / "metrics.jsonl";
  for (const std::string bad : {"garbage\n", "{\"step\":x}\n", "{\"step\":1", "{\"step\":-1}\n", "\n"}) {
    const std::string content = "{\"step\":1}\n" + bad + (bad.back() == '\n' ? "" : "7\n");
    spit(path, content);
    EXPECT_THAT([&] { cut_from_step(path, 5); }, ThrowsMessage<IoError>(HasSubstr("line 2 of"))) << bad;
    EXPECT_EQ(slurp(path), content);
  }
}

TEST(EventLog, LinesNameStepKindTimeAndMessage) {
  const RunEvent event{EventKind::skip, 12, "the gradient of \"layers.0.wq\" holds NaN on rank 3"};
  EXPECT_EQ(to_json_line(event, 1700000000.5),
            R"({"step":12,"event":"skip","time":1700000000.5,)"
            R"("message":"the gradient of \"layers.0.wq\" holds NaN on rank 3"})");
  const RunEvent raw{EventKind::save, 1, "runs/\xff\n"};  // a path need not be UTF-8
  EXPECT_EQ(nlohmann::json::parse(to_json_line(raw, 0))["message"], "runs/\xef\xbf\xbd\n");
}

TEST(EventLog, AddsToTheHistoryOfEarlierProcesses) {
  const TempFolder folder;
  EventLog(folder / "events.jsonl").write({EventKind::start, 0, "first"});
  EventLog(folder / "events.jsonl").write({EventKind::restart, 0, "second"});
  const std::string text = slurp(folder / "events.jsonl");
  const size_t newline = text.find('\n');
  EXPECT_EQ(nlohmann::json::parse(text.substr(0, newline))["event"], "start");
  const auto second = nlohmann::json::parse(text.substr(newline + 1));
  EXPECT_EQ(second["event"], "restart");
  EXPECT_GT(second["time"], 1.7e9);  // the wall clock, not a process's
}

}  // namespace
}  // namespace moesaic
