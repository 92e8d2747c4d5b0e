#include "report/page/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "report/event_log.h"
#include "report/metrics.h"
#include "report/trace.h"
#include "support/html_check.h"
#include "support/temp_folder.h"

namespace moesaic {
namespace {

using test::HtmlCheck;
using testing::HasSubstr;
using testing::Not;
using testing::ThrowsMessage;

/// A run of `steps` steps that has everything.
void write_run(const std::string& folder, int64_t steps, const std::string& name = "a") {
  make_folders(folder + "/traces");
  std::string lines;
  for (int64_t s = 0; s < steps; ++s) {
    StepMetrics m;
    m.step = s, m.loss = 2 + 1.0 / static_cast<double>(s + 1), m.grad_norm = 0.5, m.lr = 1e-3,
    m.tokens_per_s = 1000, m.seconds = 0.5;
    m.aux_loss = 0.01, m.expert_load = {{3, 1}, {2, 2}}, m.dropped = {1, 0},
    m.memory_bytes = {{"parameters", 4096}};
    if (s % 5 == 4) m.val_loss = m.loss + 0.1;
    if (s == 3) m.skipped = true, m.loss = std::numeric_limits<double>::quiet_NaN();
    lines += to_json_line(m) + "\n";
  }
  spit(folder + "/metrics.jsonl", lines);
  spit(folder + "/config.toml", "[optim]\nclip = 1.0\n\n[run]\nname = \"" + name + "\"\n");
  EventLog events(folder + "/events.jsonl");
  events.write({EventKind::start, 0, "started"});
  events.write({EventKind::restart, steps / 2, "resumed"});
  RunInfo info;
  info.model = name, info.parameters = 3'400'000, info.ranks = 2,
  info.memory = {{{"parameters", 4096}}, {{"parameters", 8192}}};
  write_run_info(folder + "/run.json", info);
  write_chrome_trace(folder + "/traces/step_1.json", {{"matmul", "experts", 0, "compute", 0, 5, 1, 2},
                                                      {"exchange", "dispatch", 0, "comm", 3, 9, 1, 0}});
}

std::string page_of(const std::vector<std::string>& folders, PageOptions options = {}) {
  std::vector<RunData> runs;
  for (const std::string& folder : folders) runs.push_back(read_run(folder, std::nullopt));
  return report_page(std::move(runs), options);
}

nlohmann::json data_of(const HtmlCheck& page) {
  return nlohmann::json::parse(page.raw.at("script application/json"));
}

TEST(ReportPage, IsWellFormedAndShowsEveryPart) {
  const TempFolder folder;
  write_run(folder / "a", 20);
  const std::string text = page_of({folder / "a"});
  const HtmlCheck page(text);
  EXPECT_EQ(page.problem, "");
  for (const char* part : {"<h1>a</h1>", "3.40 M", ">Loss<", ">Gradient norm<", ">Learning rate<",
                           ">Throughput<", ">Busiest expert<", ">Dropped rows<", ">Load of each expert<",
                           ">Memory of the device<", ">Timeline of a step<", "2 events", "config.toml",
                           "skipped step", "resumed", "clipped above", "held-out", "rank 1"})
    EXPECT_THAT(text, HasSubstr(part));
  const auto data = data_of(page);
  EXPECT_EQ(data["charts"].size(), 7u);
  const auto& training = data["charts"][0]["series"][0];
  EXPECT_EQ(training["x"].size(), 20u);
  EXPECT_EQ(training["y"][0], 3);
  EXPECT_TRUE(training["y"][3].is_null());
  EXPECT_EQ(data["maps"][0]["experts"][0][0], std::string(20, load_letter(1.5)));
  EXPECT_EQ(data["maps"][0]["all"][1], std::string(20, 'M'));
  EXPECT_EQ(data["timelines"][0]["ranks"][0]["streams"][1][0][0], 30);  // tenths of a microsecond
}

TEST(ReportPage, FetchesNothing) {
  const TempFolder folder;
  write_run(folder / "a", 5);
  const std::string text = page_of({folder / "a"});
  const HtmlCheck page(text);
  for (const char* attribute : {"src", "href", "srcset", "action", "onload", "onclick"})
    EXPECT_FALSE(page.attributes.contains(attribute));
  EXPECT_FALSE(page.elements.contains("link"));
  EXPECT_THAT(text, HasSubstr("default-src 'none'"));
  EXPECT_THAT(page.raw.at("script"), Not(HasSubstr("innerHTML")));
  EXPECT_THAT(page.raw.at("style"), Not(HasSubstr("url(")));
}

TEST(ReportPage, TextFromARunIsInert) {
  const TempFolder folder;
  const std::string evil = "<script>alert(1)</script>\"'&</script><!--\xff";
  const std::string path = folder / "<script>x<\\script>&\"'";
  write_run(path, 6, evil);
  EventLog(path + "/events.jsonl").write({EventKind::skip, 3, evil});
  spit(path + "/config.toml", evil + "\n[" + evil + "]\n" + evil + " = " + evil + "\n");
  write_chrome_trace(path + "/traces/step_2.json", {{evil, evil, 0, evil, 0, 5, 1, 2}});
  spit(path + "/metrics.jsonl", "{\"step\":0,\"loss\":1,\"memory_bytes\":{\"<b>\":1}}\n");
  write_run(folder / "b", 3);
  for (const auto& folders : {std::vector{path}, std::vector{path, folder / "b"}}) {
    const HtmlCheck page(page_of(folders));
    EXPECT_EQ(page.problem, "");
    EXPECT_EQ(page.elements.at("script"), 2);
    data_of(page);  // throws unless it is whole
  }
}

TEST(ReportPage, ComparesRunsAndTellsTheirSettingsApart) {
  const TempFolder folder;
  write_run(folder / "one/a", 20);
  write_run(folder / "two/a", 10);
  spit(folder / "two/a/config.toml", "[optim]\nclip = 2.0\n\n[run]\nname = \"a\"\n");
  const std::string text = page_of({folder / "one/a", folder / "two/a"});
  const HtmlCheck page(text);
  EXPECT_EQ(page.problem, "");
  EXPECT_THAT(text, HasSubstr("one/a</button>"));
  EXPECT_THAT(text, HasSubstr("two/a</button>"));
  EXPECT_THAT(
      text, HasSubstr("<td><code>optim.clip</code></td><td><code>1.0</code></td><td><code>2.0</code></td>"));
  EXPECT_THAT(text, Not(HasSubstr("<code>run.name</code>")));
  EXPECT_EQ(data_of(page)["charts"][0]["series"].size(), 4u);
  EXPECT_THAT(page_of({folder / "one/a", folder / "one/a"}),
              HasSubstr("All runs have the same configuration."));
}

TEST(ReportPage, LinesCanBeDrawnOverTokensOrTime) {
  const TempFolder folder;
  write_run(folder / "a", 8);
  const auto last_x = [&](PageX x) {
    const auto data = data_of(HtmlCheck(page_of({folder / "a"}, {x})));
    return data["charts"][0]["series"][0]["x"].back().get<double>();
  };
  EXPECT_EQ(last_x(PageX::step), 7);
  EXPECT_EQ(last_x(PageX::tokens), 8 * 500);
  EXPECT_EQ(last_x(PageX::time), 4);  // seconds
  spit(folder / "a/metrics.jsonl",
       "{\"step\":0,\"loss\":1,\"seconds\":600}\n{\"step\":1,\"loss\":1,\"seconds\":null}\n"
       "{\"step\":2,\"loss\":1,\"seconds\":300}\n");
  EXPECT_EQ(last_x(PageX::time), 15);  // minutes
  EXPECT_THAT(page_of({folder / "a"}, {PageX::time}), HasSubstr("minutes of training"));
}

TEST(ReportPage, ShowsMfuInPercentWhereItIsKnown) {
  const TempFolder folder;
  make_folders(folder / "a");
  spit(folder / "a/metrics.jsonl",
       "{\"step\":0,\"loss\":2,\"mfu\":0.42}\n{\"step\":1,\"loss\":2,\"mfu\":0.375}\n");
  const std::string text = page_of({folder / "a"});
  EXPECT_THAT(text, HasSubstr("<b>42.0 %</b>"));
  EXPECT_THAT(text, HasSubstr("<b>MFU</b>"));
  EXPECT_EQ(data_of(HtmlCheck(text))["charts"].back()["series"][0]["y"], (nlohmann::json{42, 37.5}));
  EXPECT_THAT(page_of({folder / "a"}), Not(HasSubstr("<b>Learning rate</b>")));
}

TEST(ReportPage, SmallAndOddRunsGiveAPageToo) {
  const TempFolder folder;
  const auto page_for = [&](const std::string& metrics) {
    make_folders(folder / "a");
    spit(folder / "a/metrics.jsonl", metrics);
    const std::string text = page_of({folder / "a"});
    EXPECT_EQ(HtmlCheck(text).problem, "") << metrics;
    return text;
  };
  EXPECT_THAT(page_for(""), HasSubstr("No step was logged yet."));
  EXPECT_THAT(page_for("{\"step\":0"), HasSubstr("No step was logged yet."));
  const std::string one = page_for("{\"step\":0,\"loss\":5.5,\"grad_norm\":1}\n");
  EXPECT_THAT(one, HasSubstr("class=\"dots r0\""));  // a line of one point would not be seen
  EXPECT_THAT(one, HasSubstr("no evaluation"));
  std::string nan_run;
  for (int s = 0; s < 9; ++s)
    nan_run += fmt::format("{{\"step\":{},\"loss\":null,\"grad_norm\":null,\"skipped\":true}}\n", s);
  const std::string nothing = page_for(nan_run);
  EXPECT_THAT(nothing, HasSubstr("no finite value"));
  EXPECT_THAT(nothing, HasSubstr("not finite"));
  EXPECT_THAT(nothing, HasSubstr(", 9 skipped"));
  EXPECT_THAT(page_for("{\"step\":0,\"loss\":1e308,\"grad_norm\":-1e308,\"lr\":1e-320,\"tokens_per_s\":1e300,"
                       "\"seconds\":1e300}\n"
                       "{\"step\":9000000000000000,\"loss\":1e29,\"grad_norm\":1e-29,\"seconds\":-5}\n"),
              HasSubstr("Gradient norm"));
  EXPECT_THAT(
      page_for("{\"step\":1,\"memory_bytes\":{\"a\":-5,\"b\":9000000000000000000,\"c\":9000000000000000000},"
               "\"expert_load\":[[0,0],[0,0]]}\n"),
      HasSubstr("memory"));
}

TEST(ReportPage, AnAxisBecomesLogarithmicOnlyWhenValuesAskForIt) {
  const TempFolder folder;
  make_folders(folder / "a");
  const auto is_log = [&](const std::string& outlier) {
    std::string lines;
    for (int s = 0; s < 20; ++s)
      lines += fmt::format("{{\"step\":{},\"loss\":2,\"grad_norm\":{}}}\n", s, s == 7 ? outlier : "0.5");
    spit(folder / "a/metrics.jsonl", lines);
    return data_of(HtmlCheck(page_of({folder / "a"})))["charts"][1]["log"].get<bool>();
  };
  EXPECT_FALSE(is_log("20"));
  EXPECT_TRUE(is_log("2000"));
  EXPECT_FALSE(is_log("0"));
}

TEST(ReportPage, StaysSmallHoweverLongTheRunAndLargeTheModel) {
  const TempFolder folder;
  write_run(folder / "a", 10);
  std::string lines;
  for (int s = 0; s < 100'000; ++s)
    lines += fmt::format(
        "{{\"step\":{},\"loss\":{},\"grad_norm\":{},\"lr\":{},\"aux_loss\":{},\"z_loss\":{},\"tokens_per_s\":"
        "{},\"mfu\":{},\"seconds\":1,\"dropped\":[{}],\"skipped\":true}}\n",
        s * 10, 2 + std::sin(s), 1 + std::cos(s * 2), 1e-3 / (1 + s), std::abs(std::sin(s * 3)),
        std::abs(std::sin(s * 5)), 1e5 + std::sin(s * 7), 0.4 + 0.01 * std::sin(s), s % 7);
  spit(folder / "a/metrics.jsonl", lines);
  EXPECT_LT(page_of({folder / "a"}).size(), 700'000u);

  StepMetrics m;
  m.expert_load.assign(61, std::vector<int64_t>(256, 7));
  std::string large;
  for (m.step = 0; m.step < 200; ++m.step) {
    for (auto& layer : m.expert_load)
      for (size_t e = 0; e < layer.size(); ++e)
        layer[e] = static_cast<int64_t>((e * 7 + static_cast<size_t>(m.step) * 13) % 29);
    large += to_json_line(m) + "\n";
  }
  spit(folder / "a/metrics.jsonl", large);
  std::vector<TraceEvent> events;
  for (int i = 0; i < 100'000; ++i)
    events.push_back({"op", "experts", i % 4, "compute", i * 1.0, i + 0.9, 0, 0});
  write_chrome_trace(folder / "a/traces/step_5.json", events);
  EXPECT_LT(page_of({folder / "a"}).size(), 1'500'000u);
}

TEST(WriteReport, WritesTheFileOrSaysWhyNot) {
  const TempFolder folder;
  write_run(folder / "a", 3);
  write_report({folder / "a"}, std::nullopt, {}, folder / "report.html");
  EXPECT_EQ(slurp(folder / "report.html"), page_of({folder / "a"}));
  EXPECT_THAT([&] { write_report({folder / "b"}, std::nullopt, {}, folder / "report.html"); },
              ThrowsMessage<IoError>(HasSubstr("is not the folder of a run")));
  EXPECT_THAT(
      [&] {
        write_report(std::vector<std::string>(kMaxRuns + 1, folder / "a"), std::nullopt, {},
                     folder / "report.html");
      },
      ThrowsMessage<ConfigError>(HasSubstr("at most 20")));
  EXPECT_THROW(write_report({folder / "a"}, std::nullopt, {}, folder / "none/report.html"), IoError);
}

}  // namespace
}  // namespace moesaic
