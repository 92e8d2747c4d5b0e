#include "report/page/metrics_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "report/metrics.h"
#include "support/temp_folder.h"

namespace moesaic {
namespace {

using testing::ElementsAre;

TEST(ReadMetrics, ReadsWhatARunWrites) {
  const TempFolder folder;
  std::string text;
  for (int64_t s = 0; s < 3; ++s) {
    StepMetrics m;
    m.step = s, m.loss = 3 - static_cast<double>(s), m.grad_norm = 0.5, m.lr = 1e-3, m.tokens_per_s = 1000,
    m.seconds = 2;
    m.aux_loss = 0.25, m.z_loss = 0.125, m.counted_tokens = 64;
    m.expert_load = {{3, 1}, {2, 2}};
    m.dropped = {1, s};
    m.memory_bytes = {{"parameters", 100 + s}, {"buffers", 5}};
    if (s == 1) m.val_loss = 2.5, m.mfu = 0.4, m.skipped = true;
    text += to_json_line(m) + "\n";
  }
  spit(folder / "metrics.jsonl", text);
  const MetricColumns all = read_metrics(folder / "metrics.jsonl");
  EXPECT_THAT(all.step, ElementsAre(0, 1, 2));
  EXPECT_THAT(all.loss, ElementsAre(3, 2, 1));
  EXPECT_THAT(all.aux_loss, ElementsAre(0.25, 0.25, 0.25));
  EXPECT_THAT(all.z_loss, ElementsAre(0.125, 0.125, 0.125));
  EXPECT_THAT(all.seconds, ElementsAre(2, 2, 2));
  EXPECT_THAT(all.counted_tokens, ElementsAre(64, 64, 64));
  EXPECT_THAT(all.dropped, ElementsAre(1, 2, 3));
  EXPECT_THAT(all.balance, ElementsAre(1.5, 1.5, 1.5));
  EXPECT_THAT(all.skipped, ElementsAre(0, 1, 0));
  EXPECT_EQ(all.val_loss[1], 2.5);
  EXPECT_TRUE(std::isnan(all.val_loss[0]));
  EXPECT_EQ(all.mfu[1], 0.4);
  EXPECT_EQ(all.load.layers(), 2u);
  EXPECT_EQ(all.memory, (MemoryByPurpose{{"parameters", 102}, {"buffers", 5}}));
  EXPECT_EQ(all.damaged_lines, 0);
}

TEST(ReadMetrics, NullIsNotANumberAndNoDamage) {
  const MetricColumns all = parse_metrics("{\"step\":0,\"loss\":null,\"dropped\":[null]}\n");
  EXPECT_EQ(all.damaged_lines, 0);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_TRUE(std::isnan(all.loss[0]));
}

TEST(ReadMetrics, AnUnfinishedLastLineIsPassedOverInSilence) {
  for (const std::string tail : {"{\"st", "{\"step\":1,\"loss\":2}", "{"}) {
    const MetricColumns all = parse_metrics("{\"step\":0,\"loss\":1}\n" + tail);
    EXPECT_THAT(all.step, ElementsAre(0)) << tail;
    EXPECT_EQ(all.damaged_lines, 0) << tail;
  }
  EXPECT_EQ(parse_metrics("").size(), 0u);
  EXPECT_EQ(parse_metrics("{\"step\":0").size(), 0u);
}

TEST(ReadMetrics, DamagedLinesAreCountedAndTheOthersStay) {
  for (const std::string& bad :
       {std::string("garbage"), std::string(), std::string("7"), std::string("[1]"),
        std::string("{\"loss\":1}"), std::string("{\"step\":-1}"), std::string("{\"step\":0.5}"),
        std::string("{\"step\":1e300}"), std::string("{\"step\":null}"),
        std::string("{\"step\":0,\"loss\":1}"),  // a step that does not ascend
        std::string("{\"step\":1}}"), std::string("{\"step\":\"1\"}"),
        std::string("{\"step\":1,\"loss\":\xff}"), std::string("{\"step\":1,\"x\":[[[[[1]]]]]}"),
        std::string(100000, '['), std::string("{\"step\":1,\"a\":") + std::string(100000, '[')}) {
    const MetricColumns all =
        parse_metrics("{\"step\":0,\"loss\":1}\n" + bad + "\n{\"step\":2,\"loss\":3}\n");
    EXPECT_THAT(all.step, ElementsAre(0, 2)) << bad.substr(0, 40);
    EXPECT_THAT(all.loss, ElementsAre(1, 3)) << bad.substr(0, 40);
    EXPECT_EQ(all.damaged_lines, 1) << bad.substr(0, 40);
  }
}

TEST(ReadMetrics, OtherTypesThanExpectedAreNotMeasured) {
  const MetricColumns all = parse_metrics(
      "{\"step\":0,\"loss\":\"low\",\"grad_norm\":{\"a\":1},\"lr\":[1],\"dropped\":3,\"expert_load\":[1,[2],["
      "3,[4]]],"
      "\"memory_bytes\":{\"a\":\"b\",\"c\":1e300}}\n");
  ASSERT_EQ(all.size(), 1u);
  EXPECT_TRUE(std::isnan(all.loss[0]));
  EXPECT_TRUE(std::isnan(all.grad_norm[0]));
  EXPECT_TRUE(std::isnan(all.lr[0]));
  EXPECT_TRUE(std::isnan(all.dropped[0]));
}

TEST(ReadMetrics, AMissingFileIsAnIoError) {
  const TempFolder folder;
  EXPECT_THROW(read_metrics(folder / "metrics.jsonl"), IoError);
}

}  // namespace
}  // namespace moesaic
