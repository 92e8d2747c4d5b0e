#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/counts.h"
#include "config/parse.h"
#include "config/shapes.h"
#include "config/validate.h"
#include "support/thrown.h"

namespace moesaic {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

double billions(std::string_view name) {
  return static_cast<double>(count_model(model_shape(name)).total) / 1e9;
}
double active_billions(std::string_view name) {
  return static_cast<double>(count_model(model_shape(name)).active) / 1e9;
}

TEST(Counts, Internal352bMatchesThePaper) {
  EXPECT_NEAR(billions("internal-352b"), 351.86, 0.005);
  EXPECT_NEAR(active_billions("internal-352b"), 45.07, 0.005);
  EXPECT_NEAR(flops_per_token(model_shape("internal-352b"), 8192) / 1e9, 282.5, 0.05);
}

TEST(Counts, MatchThePublishedSizes) {
  EXPECT_NEAR(billions("mixtral-8x7b"), 46.70, 0.005);
  EXPECT_NEAR(billions("mixtral-8x22b"), 140.62, 0.01);
  EXPECT_NEAR(billions("hunyuan-large"), 389, 0.5);
  EXPECT_NEAR(billions("phi-3.5-moe"), 41.87, 0.01);
  EXPECT_NEAR(billions("deepseek-moe-16b"), 16.38, 0.01);
  EXPECT_NEAR(billions("qwen3-30b-a3b"), 30.53, 0.01);
}

TEST(Counts, OfATinyModelByHand) {
  ModelConfig m{.num_layers = 2,
                .hidden = 8,
                .num_heads = 4,
                .num_kv_heads = 2,
                .head_dim = 2,
                .expert_ffn = 5,
                .num_experts = 6,
                .top_k = 2,
                .vocab = 10,
                .shared_ffn = 3,
                .num_dense_layers = 1,
                .dense_ffn = 7,
                .tied_embedding = false,
                .qk_norm = true,
                .router = {}};
  const int64_t attention = 8 * 8 + 8 * 4 + 8 * 4 + 8 * 8;
  const int64_t once = 2 * attention + 3 * 8 * 7 + 8 * 6 + 3 * 8 * 3;
  const int64_t norms = 2 * (2 * 8 + 2 * 2) + 8;
  EXPECT_EQ(count_model(m).total, once + 6 * 3 * 8 * 5 + norms + 2 * 80);
  EXPECT_EQ(count_model(m).active, once + 2 * 3 * 8 * 5 + 80);
  EXPECT_EQ(flops_per_token(m, 16), 6.0 * static_cast<double>(count_model(m).active) + 6.0 * 2 * 16 * 4 * 2);
  m.tied_embedding = true;
  EXPECT_EQ(count_model(m).total, once + 6 * 3 * 8 * 5 + norms + 80);
  EXPECT_EQ(count_model(m).active, once + 2 * 3 * 8 * 5 + 80);
}

TEST(Shapes, EachIsValidAndNamedAfterItself) {
  for (const std::string_view name : model_shape_names()) {
    Config config;
    config.model = model_shape(name);
    EXPECT_EQ(config.model.name, name);
    EXPECT_NO_THROW(validate_values(config)) << name;
  }
}

TEST(Shapes, TinyIsTheDefault) {
  Config config;
  apply_setting(config, "model.preset=tiny");
  EXPECT_EQ(config.model.hidden, ModelConfig{}.hidden);
  EXPECT_EQ(config.model.name, ModelConfig{}.name);
}

// The refusal of the default run with these settings on top.
std::string refusal(const std::vector<std::string>& settings) {
  Config config;
  apply_settings(config, settings);
  return message_of([&] { validate_values(config); });
}
void expect_valid(const std::vector<std::string>& settings) {
  Config config;
  apply_settings(config, settings);
  EXPECT_NO_THROW(validate_values(config));
}

TEST(Validate, TopKMustLieWithinTheExperts) {
  expect_valid({"model.num_experts=8", "model.top_k=8"});
  EXPECT_THAT(refusal({"model.num_experts=8", "model.top_k=9"}),
              HasSubstr("model.top_k = 9 is more than model.num_experts = 8"));
  Config config;
  config.model.top_k = 0;
  EXPECT_THAT(message_of([&] { validate_values(config); }), HasSubstr("model.top_k must be at least 1"));
  EXPECT_THROW(apply_setting(config, "model.top_k=0"), ConfigError);
}

TEST(Validate, TopKMustLieWithinTheKeptGroups) {
  const std::vector<std::string> groups{"model.num_experts=8", "model.router.num_groups=4",
                                        "model.router.num_groups_kept=2"};
  auto with_top_k = [&](const char* setting) {
    auto settings = groups;
    settings.emplace_back(setting);
    return settings;
  };
  expect_valid(with_top_k("model.top_k=4"));
  EXPECT_THAT(
      refusal(with_top_k("model.top_k=5")),
      AllOf(HasSubstr("model.top_k = 5"), HasSubstr("the 4 experts"), HasSubstr("num_groups_kept = 2")));
  EXPECT_THAT(refusal({"model.num_experts=8", "model.router.num_groups=3"}),
              HasSubstr("model.router.num_groups = 3 does not divide model.num_experts = 8"));
  EXPECT_THAT(refusal({"model.router.num_groups=2", "model.router.num_groups_kept=3"}),
              HasSubstr("model.router.num_groups_kept = 3 is more than model.router.num_groups = 2"));
}

TEST(Validate, ModelRulesNameKeysAndNumbers) {
  EXPECT_THAT(refusal({"model.num_heads=4", "model.num_kv_heads=3"}),
              HasSubstr("model.num_kv_heads = 3 does not divide model.num_heads = 4"));
  EXPECT_THAT(refusal({"model.head_dim=15"}), HasSubstr("model.head_dim = 15 is odd"));
  EXPECT_THAT(refusal({"model.num_dense_layers=3", "model.dense_ffn=8"}),
              HasSubstr("model.num_dense_layers = 3 is more than model.num_layers = 2"));
  EXPECT_THAT(refusal({"model.num_dense_layers=1"}), HasSubstr("set both or neither"));
  EXPECT_THAT(refusal({"model.dense_ffn=1"}), HasSubstr("set both or neither"));
  EXPECT_THAT(refusal({"model.router.softmax_after_topk=true", "model.router.score=sigmoid"}),
              HasSubstr("found sigmoid"));
  EXPECT_THAT(refusal({"model.num_layers=10000", "model.hidden=1048576", "model.expert_ffn=1048576",
                       "model.num_experts=65536"}),
              HasSubstr("parameters, expected at most 1e+15"));
}

TEST(Validate, OptimAndRunRules) {
  EXPECT_THAT(refusal({"optim.lr=1e-4", "optim.min_lr=1e-3"}),
              HasSubstr("optim.min_lr = 0.001 is more than"));
  expect_valid({"optim.lr=1e-4", "optim.min_lr=1e-3", "optim.decay=constant"});
  expect_valid({"train.steps=3"});  // a short look at a run may end within its warm-up
  EXPECT_THAT(refusal({"train.steps=10", "optim.warmup_steps=5", "optim.decay=wsd", "optim.decay_steps=6"}),
              HasSubstr("together pass train.steps = 10"));
  for (const char* name : {"run.name=", "run.name=..", "run.name=a/b"}) {
    EXPECT_THAT(refusal({name}), HasSubstr("cannot name a folder"));
  }
  EXPECT_THAT(refusal({"run.folder="}), HasSubstr("run.folder is empty"));
}

TEST(Validate, NumbersSetByCodeAreHeldToTheSameRanges) {
  Config config;
  config.optim.lr = -1;
  EXPECT_THAT(message_of([&] { validate_values(config); }),
              HasSubstr("optim.lr must be at least 0, but is -1"));
  config = {};
  config.train.seed = uint64_t{1} << 63;
  EXPECT_THAT(message_of([&] { validate_values(config); }), HasSubstr("train.seed must be at most"));
}

TEST(Validate, WhatIsNotBuiltYetIsRefusedInPlainWords) {
  EXPECT_THAT(refusal({"layout.pp=2"}), HasSubstr("layout.pp = 2: pipeline stages are not built yet"));
  EXPECT_THAT(refusal({"layout.attention=tp"}), HasSubstr("layout.attention = tp is not built yet"));
  EXPECT_THAT(refusal({"layout.experts=tp"}), HasSubstr("layout.experts = tp is not built yet"));
  EXPECT_THAT(refusal({"run.device=sim"}), HasSubstr("run.device = sim is not built yet"));
  EXPECT_THAT(refusal({"run.device=cuda", "model.num_experts=2048"}), HasSubstr("model.num_experts = 2048"));
  EXPECT_THAT(refusal({"run.device=cuda", "model.head_dim=514"}), HasSubstr("model.head_dim = 514"));
  EXPECT_THAT(refusal({"run.device=sim"}), HasSubstr("run.device = sim is not built yet"));
  expect_valid({"run.device=null"});
  expect_valid({"run.device=cuda", "model.layer_norm=true", "model.attention_bias=true",
                "model.head_bias=true", "model.router.score=sparsemixer", "model.router.renormalize=false"});
}

}  // namespace
}  // namespace moesaic
