#include "mesh/rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/parse.h"
#include "support/thrown.h"

namespace moesaic {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// S 64, global batch 8, one sequence per micro-batch; 8 query and 2 key/value heads, 8 experts of which each
// token takes 2.
Config run(const std::vector<std::string>& settings) {
  Config config = parse_config_text(
      "model = {num_heads = 8, num_kv_heads = 2, num_experts = 8, top_k = 2}\n"
      "train = {seq_len = 64, global_batch = 8, micro_batch = 1}\n",
      "test");
  apply_settings(config, settings);
  return config;
}
std::string refusal(const std::vector<std::string>& settings) {
  return message_of([&] { validate_layout(run(settings)); });
}
void expect_valid(const std::vector<std::string>& settings) {
  EXPECT_NO_THROW(validate_layout(run(settings)));
}

TEST(Rules, ExpertsMustDivideByExpertRanks) {
  EXPECT_THAT(refusal({"model.num_experts=6", "layout.n=4"}),
              HasSubstr("layout.e = 4 does not divide model.num_experts = 6"));
  expect_valid({"model.num_experts=16", "layout.n=2"});
}

TEST(Rules, ExpertRanksMustDivideTheStage) {
  EXPECT_THAT(refusal({"model.num_experts=6", "layout.n=4", "layout.e=3"}),
              AllOf(HasSubstr("layout.e = 3"), HasSubstr("= 4 ranks")));
  expect_valid({"layout.n=4", "layout.e=2"});
  expect_valid({"layout.n=2", "layout.dp=2", "layout.e=4"});
}

TEST(Rules, KeyValueHeadsAreRepeatedWhenFewerThanRanks) {
  expect_valid({"layout.n=2"});
  expect_valid({"layout.n=4"});
  expect_valid({"layout.n=8"});
}

TEST(Rules, HeadsThatDoNotSplitEvenlyAreRefused) {
  EXPECT_THAT(refusal({"model.num_heads=28", "model.num_kv_heads=7", "layout.n=2"}),
              HasSubstr("layout.n = 2 does not divide model.num_kv_heads = 7"));
  EXPECT_THAT(refusal({"model.num_heads=12", "model.num_kv_heads=3", "layout.n=4"}),
              HasSubstr("model.num_kv_heads = 3 does not divide layout.n = 4"));
  EXPECT_THAT(refusal({"model.num_heads=6", "layout.n=4"}),
              HasSubstr("layout.n = 4 does not divide model.num_heads = 6"));
}

TEST(Rules, SequenceMustDivideUnderSpButNotUnderBatch) {
  EXPECT_THAT(refusal({"train.seq_len=63", "layout.n=4"}),
              HasSubstr("layout.n = 4 does not divide train.seq_len = 63"));
  expect_valid({"train.seq_len=63", "layout.n=4", "layout.attention=batch", "train.micro_batch=4"});
  EXPECT_THAT(refusal({"layout.n=4", "layout.attention=batch", "train.micro_batch=2"}),
              HasSubstr("layout.n = 4 does not divide train.micro_batch = 2"));
  expect_valid({"model.num_heads=28", "model.num_kv_heads=7", "layout.n=2", "layout.attention=batch",
                "train.micro_batch=2"});
}

TEST(Rules, GlobalBatchMustBeWholeMicroBatchesOnEveryReplica) {
  EXPECT_THAT(
      refusal({"train.global_batch=8", "train.micro_batch=3"}),
      HasSubstr("train.global_batch = 8 is not a multiple of layout.dp * train.micro_batch = 1 * 3 = 3"));
  EXPECT_THAT(refusal({"train.global_batch=8", "train.micro_batch=4", "layout.dp=4"}),
              HasSubstr("4 * 4 = 16"));
}

TEST(Rules, ExpertGroupsMustDivideTheExperts) {
  EXPECT_THAT(refusal({"balance.expert_groups=3"}),
              HasSubstr("balance.expert_groups = 3 does not divide model.num_experts = 8"));
  expect_valid({"balance.expert_groups=4"});
}

TEST(Rules, TheMeshAndRowsFactorAreChecked) {
  EXPECT_THAT(refusal({"layout.pp=65536", "layout.dp=2"}), HasSubstr("131072 ranks, expected at most 65536"));
  Config config = run({});
  config.layout.rows_factor = 0.5;
  EXPECT_THAT(message_of([&] { validate_layout(config); }),
              HasSubstr("layout.rows_factor must be at least 1"));
}

TEST(Derive, GivesTheSizesOfARank) {
  const RankShape shape =
      derive(run({"layout.dp=2", "layout.n=2", "train.micro_batch=2", "layout.rows_factor=1.3"}));
  EXPECT_EQ(shape.num_tokens, 64);
  EXPECT_EQ(shape.num_micro_batches, 2);
  EXPECT_EQ(shape.num_local_experts, 4);
  EXPECT_EQ(shape.max_rows, 167);  // 1.3 * 128, rounded up
}

TEST(Derive, RowsAreExactWithOneExpertRank) {
  EXPECT_EQ(derive(run({"layout.rows_factor=2"})).max_rows, 64 * 2);
  EXPECT_EQ(derive(run({"layout.n=2", "layout.e=1", "layout.rows_factor=2"})).max_rows, 32 * 2);
}

TEST(Derive, RowsNeverPassWhatRoutingCanSend) {
  // 8 ranks with one expert each: a token sends at most one of its two copies there.
  EXPECT_EQ(derive(run({"layout.n=8", "layout.rows_factor=100"})).max_rows, 8 * 8 * 1);
  EXPECT_EQ(derive(run({"layout.n=4", "layout.rows_factor=100"})).max_rows, 4 * 16 * 2);
  EXPECT_EQ(derive(run({"layout.n=4", "layout.rows_factor=3"})).max_rows, 3 * 16 * 2);
}

TEST(Derive, BatchAttentionGivesTheSameTokens) {
  EXPECT_EQ(derive(run({"layout.n=4", "train.micro_batch=4"})).num_tokens, 64);
  EXPECT_EQ(derive(run({"layout.n=4", "train.micro_batch=4", "layout.attention=batch"})).num_tokens, 64);
}

TEST(Derive, ShippedQuickstartFits) {
  const RankShape shape = derive(parse_config_file(MOESAIC_SOURCE_DIR "/configs/runs/quickstart.toml"));
  EXPECT_EQ(shape.num_tokens, 256);
  EXPECT_EQ(shape.num_micro_batches, 1);
}

}  // namespace
}  // namespace moesaic
