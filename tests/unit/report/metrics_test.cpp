#include "report/metrics.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

namespace moesaic {
namespace {

StepMetrics example() {
  StepMetrics m;
  m.step = 7;
  m.loss = 2.5;
  m.aux_loss = 0.0625;
  m.grad_norm = 1.25;
  m.lr = 0.003;
  m.tokens_per_s = 12000;
  m.memory_bytes = {{"parameters", 4096}, {"activations", 5'000'000'000}};
  m.expert_load = {{3, 1}, {2, 2}};
  m.dropped = {0, 1};
  m.counted_tokens = 1024;
  m.seconds = 0.5;
  m.data_wait_s = 0.25;
  return m;
}

TEST(Metrics, LineHoldsEveryFieldInTheDocumentedOrder) {
  EXPECT_EQ(
      to_json_line(example()),
      R"({"step":7,"loss":2.5,"aux_loss":0.0625,"z_loss":0.0,"grad_norm":1.25,"lr":0.003,)"
      R"("tokens_per_s":12000.0,"counted_tokens":1024,"seconds":0.5,"data_wait_s":0.25,"skipped":false,)"
      R"("memory_bytes":{"parameters":4096,"activations":5000000000},)"
      R"("expert_load":[[3,1],[2,2]],"dropped":[0,1]})");
}

TEST(Metrics, OptionalFieldsAppearOnlyWhenKnown) {
  StepMetrics m = example();
  m.val_loss = 1.75;
  const auto evaluated = nlohmann::json::parse(to_json_line(m));
  EXPECT_EQ(evaluated["val_loss"], 1.75);
  EXPECT_FALSE(evaluated.contains("mfu"));
  m.val_loss.reset();
  m.mfu = 0.5;
  const auto on_gpu = nlohmann::json::parse(to_json_line(m));
  EXPECT_EQ(on_gpu["mfu"], 0.5);
  EXPECT_FALSE(on_gpu.contains("val_loss"));
}

TEST(Metrics, NumbersThatAreNotFiniteBecomeNull) {
  StepMetrics m = example();
  m.loss = std::numeric_limits<double>::quiet_NaN();
  m.val_loss = -std::numeric_limits<double>::infinity();
  m.grad_norm = std::numeric_limits<double>::infinity();
  m.skipped = true;
  const auto line = nlohmann::json::parse(to_json_line(m));  // throws unless it is valid JSON
  EXPECT_TRUE(line["loss"].is_null());
  EXPECT_TRUE(line["val_loss"].is_null());
  EXPECT_TRUE(line["grad_norm"].is_null());
  EXPECT_EQ(line["skipped"], true);
}

TEST(Metrics, BalanceIsTheWorstLayersMaxOverMean) {
  EXPECT_DOUBLE_EQ(expert_balance({{2, 2, 2, 2}}), 1);
  EXPECT_DOUBLE_EQ(expert_balance({{2, 2, 2, 2}, {8, 0, 0, 0}, {3, 1, 2, 2}}), 4);
  EXPECT_DOUBLE_EQ(expert_balance({{0, 0}}), 1);
  EXPECT_DOUBLE_EQ(expert_balance({}), 1);
}

}  // namespace
}  // namespace moesaic
