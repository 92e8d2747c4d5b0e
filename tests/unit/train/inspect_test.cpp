// `moesaic inspect` and the activations that it shows.
#include "train/inspect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/parse.h"
#include "config/shapes.h"
#include "support/thrown.h"
#include "support/train_run.h"

namespace moesaic {
namespace {

using namespace test;
using testing::HasSubstr;

Config shipped(std::string_view name) {
  Config c;
  c.model = model_shape(std::string(name));
  c.train.seq_len = 8192;
  return c;
}

TEST(InspectModel, ShowsThePublishedNumbersOfTheLargestModelWithoutItsMemory) {
  const std::string text = inspect_model(shipped("internal-352b"));
  EXPECT_THAT(text, HasSubstr("351.86 B parameters (351860133888)"));
  EXPECT_THAT(text, HasSubstr("282.51 GFLOP per token at S 8192"));
  EXPECT_THAT(text, HasSubstr("layers.*.experts.*.w1"));
}

TEST(InspectModel, WorksForEveryShippedShape) {
  for (const auto& name : model_shape_names())
    EXPECT_THAT(inspect_model(shipped(name)), HasSubstr("kept per layer")) << name;
}

TEST(InspectMemory, OfAClusterNeedsNone) {
  Config c = shipped("mixtral-8x7b");
  c.layout.n = 8, c.layout.dp = 4;
  EXPECT_THAT(inspect_memory(c), HasSubstr("32 ranks, "));
}

TEST(InspectProgram, ShowsTheProgramsThatAreAskedFor) {
  Config c = small_config();
  c.layout.n = 2;
  const std::string text = inspect_program(c, "MoE layer forward");
  EXPECT_THAT(text, HasSubstr("program MoE layer forward"));
  EXPECT_THAT(text, HasSubstr("all_to_all qkv"));
  EXPECT_THAT(text, testing::Not(HasSubstr("backward")));
  EXPECT_THAT(message_of([&] { inspect_program(c, "nothing"); }), HasSubstr("\"nothing\""));
}

TEST(InspectProgram, ShowsWhatTheRunsOwnDeviceWouldDo) {
  Config c = small_config();
  c.layout.n = 2;
  const std::string cpu = inspect_program(c, "MoE layer forward");
  c.run.device = DeviceKind::cuda;
  const std::string automatic = inspect_program(c, "MoE layer forward");
  c.layout.overlap = OverlapMode::parts;
  EXPECT_EQ(automatic, inspect_program(c, "MoE layer forward"));
  EXPECT_NE(automatic, cpu);
}

/// Elements that a MoE layer keeps under the selective policy, apart from statistics and routing.
int64_t kept_elements(Config c) {
  c.run.device = DeviceKind::null;
  c.layout.rebuild = Rebuild::selective;
  int64_t sum = 0;
  const std::set<std::string> routing{"logits",        "probs",      "weights",
                                      "group_weights", "router_lse", "balance_grad",
                                      "ln1_rstd",      "ln2_rstd",   "lse"};
  run_null_rank(0, Mesh(c.layout).world_size(), [&](Rank& rank) {
    Session session(c, rank);
    for (const ActivationRow& row : session.stage().programs().moe->activations.rows()) {
      const bool real = row.dtype == DType::f32 || row.dtype == DType::bf16;
      if (ActivationTable::kept(row, Rebuild::selective) && real && !routing.contains(row.name))
        sum += row.shape.numel();
    }
  });
  return sum;
}

TEST(SelectiveRebuild, KeepsAtMostThePapersElementsPerLayer) {
  for (const std::string_view name : model_shape_names())
    for (const int64_t n : {1, 2, 4, 8})
      for (const double factor : {1.0, 1.5, 2.0}) {
        Config c = shipped(name);
        c.train.compute = ComputeType::bf16;
        c.layout.n = n;
        c.layout.rows_factor = factor;
        const ModelConfig& m = c.model;
        if (m.num_heads % n != 0) continue;  // the tiny shapes
        // A head's width is D/H in the paper's models; where it is not, heads count as H A / D times as wide.
        const double D = static_cast<double>(m.hidden), H = static_cast<double>(m.num_heads),
                     T = static_cast<double>(div_exact(c.train.seq_len, n)),
                     wide = H * static_cast<double>(m.head_dim) / D;
        // A shared expert is one more expert of every token; it needs no room for uneven routing.
        const double shared = static_cast<double>(m.shared_ffn);
        const double ffn = 2 * (factor * static_cast<double>(m.top_k * m.expert_ffn) + shared) / D;
        const double heads = (2 + 2 * static_cast<double>(std::max(m.num_kv_heads, n)) / H) * wide;
        EXPECT_LE(static_cast<double>(kept_elements(c)), (ffn + 2 + heads) * T * D * (1 + 1e-9))
            << name << " n " << n;
        if (n > 1) continue;
        EXPECT_EQ(static_cast<double>(kept_elements(c)),
                  (2 * (static_cast<double>(m.top_k * m.expert_ffn) + shared) / D + 2 +
                   (2 + 2 * static_cast<double>(m.num_kv_heads) / H) * wide) *
                      T * D)
            << name;
      }
}

}  // namespace
}  // namespace moesaic
