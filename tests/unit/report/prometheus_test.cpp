#include "report/prometheus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <regex>
#include <set>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "support/temp_folder.h"

namespace moesaic {
namespace {

using testing::HasSubstr;

StepMetrics example() {
  StepMetrics m;
  m.step = 7;
  m.loss = 2.5;
  m.grad_norm = std::numeric_limits<double>::infinity();
  m.tokens_per_s = 12345.5;
  m.memory_bytes = {{"parameters", 4096}, {"activations", 5'000'000'000}};
  m.expert_load = {{3, 1}, {2, 2}};
  m.dropped = {2, 5};
  m.counted_tokens = 1024;
  return m;
}

/// Samples by "name{labels}". Fails on anything that the text format does not allow: a sample before its family's HELP and
/// TYPE, a family in two places, a sample twice, a label or value spelt otherwise.
std::map<std::string, std::string> parse(const std::string& text) {
  static const std::regex help(R"(# HELP ([a-zA-Z_:][a-zA-Z0-9_:]*) [^\\]+)"),
      type(R"(# TYPE ([a-zA-Z_:][a-zA-Z0-9_:]*) (gauge|counter))"),
      sample(
          R"re(([a-zA-Z_:][a-zA-Z0-9_:]*)\{([a-z]+="([^"\\]|\\[\\"n])*"(,[a-z]+="([^"\\]|\\[\\"n])*")*)\} (NaN|[+-]Inf|-?[0-9.]+(e[+-]?[0-9]+)?))re");
  std::map<std::string, std::string> samples;
  std::set<std::string> families;
  std::string family, helped;
  EXPECT_EQ(text.back(), '\n');
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::smatch m;
    if (std::regex_match(line, m, help)) {
      helped = m[1];
    } else if (std::regex_match(line, m, type)) {
      family = m[1];
      EXPECT_EQ(family, helped);
      EXPECT_TRUE(families.insert(family).second) << family << " has two TYPE lines";
      EXPECT_EQ(m[2] == "counter", family.ends_with("_total")) << family;
    } else if (std::regex_match(line, m, sample)) {
      EXPECT_EQ(m[1], family);
      EXPECT_TRUE(samples.emplace(m[1].str() + "{" + m[2].str() + "}", m[6]).second) << line;
    } else {
      ADD_FAILURE() << "not the text format: " << line;
    }
  }
  return samples;
}

TEST(Prometheus, WritesEverySampleInTheTextFormat) {
  PrometheusTotals totals;
  totals.tokens = 2048;
  auto samples = parse(prometheus_text(example(), totals, "a", 1700000000.5));
  EXPECT_EQ(samples.at(R"(moesaic_step{run="a"})"), "7");
  EXPECT_EQ(samples.at(R"(moesaic_loss{run="a"})"), "2.5");
  EXPECT_EQ(samples.at(R"(moesaic_grad_norm{run="a"})"), "+Inf");
  EXPECT_EQ(samples.at(R"(moesaic_tokens_per_second{run="a"})"), "12345.5");
  EXPECT_EQ(samples.at(R"(moesaic_tokens_total{run="a"})"), "2048");
  EXPECT_EQ(samples.at(R"(moesaic_memory_bytes{run="a",purpose="activations"})"), "5000000000");
  EXPECT_EQ(samples.at(R"(moesaic_expert_load_max_over_mean{run="a",layer="0"})"), "1.5");
  EXPECT_EQ(samples.at(R"(moesaic_expert_load_max_over_mean{run="a",layer="1"})"), "1");
  EXPECT_FALSE(samples.contains(R"(moesaic_validation_loss{run="a"})"));
  EXPECT_FALSE(samples.contains(R"(moesaic_mfu_ratio{run="a"})"));
}

TEST(Prometheus, NumbersThatAreNotFiniteAreSpeltAsTheFormatDoes) {
  StepMetrics m = example();
  m.loss = std::numeric_limits<double>::quiet_NaN();
  m.mfu = -std::numeric_limits<double>::infinity();
  auto samples = parse(prometheus_text(m, {}, "a", 0));
  EXPECT_EQ(samples.at(R"(moesaic_loss{run="a"})"), "NaN");
  EXPECT_EQ(samples.at(R"(moesaic_mfu_ratio{run="a"})"), "-Inf");
}

TEST(Prometheus, LabelsAreEscaped) {
  EXPECT_EQ(prometheus_label("a\"b\\c\nd"), R"(a\"b\\c\nd)");
  EXPECT_EQ(parse(prometheus_text(example(), {}, "a\"} 1\nmoesaic_loss{run=\"b", 0)).size(),
            parse(prometheus_text(example(), {}, "a", 0)).size());
}

TEST(Prometheus, TheFileShowsTheNewestStepAndSumsOfAll) {
  const TempFolder folder;
  const std::string path = folder / "run.prom";
  PrometheusFile file(path, "a");
  EXPECT_TRUE(list_folder(folder.path()).empty()) << "nothing before the first step";
  StepMetrics m = example();
  m.skipped = true, m.val_loss = 1.75;
  file.write(m);
  m.step = 8, m.val_loss.reset();
  file.write(m);
  EXPECT_EQ(list_folder(folder.path()), std::vector<std::string>{"run.prom"});
  auto samples = parse(slurp(path));
  EXPECT_EQ(samples.at(R"(moesaic_step{run="a"})"), "8");
  EXPECT_EQ(samples.at(R"(moesaic_validation_loss{run="a"})"), "1.75");
  EXPECT_EQ(samples.at(R"(moesaic_skipped_steps_total{run="a"})"), "2");
  EXPECT_EQ(samples.at(R"(moesaic_dropped_rows_total{run="a"})"), "14");
  EXPECT_EQ(samples.at(R"(moesaic_tokens_total{run="a"})"), "2048");
}

TEST(Prometheus, AFolderThatIsMissingIsAnIoErrorAtOnce) {
  const TempFolder folder;
  EXPECT_THROW(PrometheusFile(folder / "none/run.prom", "a"), IoError);
}

TEST(Prometheus, AStepCostsMuchLessThanAMillisecond) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers take their time";
#endif
  const TempFolder folder;
  PrometheusFile file(folder / "run.prom", "a");
  StepMetrics m = example();
  m.expert_load.assign(64, std::vector<int64_t>(128, 3));
  double best = 1;  // seconds; the quickest of some, since the machine may be busy with other things
  for (int i = 0; i < 50; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    file.write(m);
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  RecordProperty("microseconds", static_cast<int>(best * 1e6));
  EXPECT_LT(best, 1e-3);
}

}  // namespace
}  // namespace moesaic
