// The golden models as users meet them: a folder of Hugging Face is imported, runs with its own logits, loss and gradients on
// one rank and on more, and is exported again bit for bit.
#include "hf/convert.h"

#include <gtest/gtest.h>

#include <numeric>

#include "golden/golden_file.h"
#include "support/hf_model.h"
#include "support/setup_z.h"
#include "train/checkpointing.h"
#include "train/initial_weights.h"

namespace moesaic::test {
namespace {

class Convert : public testing::TestWithParam<const char*> {
 protected:
  Convert() : golden_(GetParam()) {
    for (const StoredTensor& tensor : golden_.file().tensors()) {
      if (!tensor.name.starts_with("model.") && !tensor.name.starts_with("lm_head.")) continue;
      const auto data = golden_.file().data(tensor);
      weights_[tensor.name] = named(tensor.name, tensor.dtype, tensor.shape,
                                    {reinterpret_cast<const char*>(data.data()), data.size()});
    }
    write_hf_folder(temp_ / "hf", golden_.json(), weights_, 2);
    imported_ = import_huggingface(temp_ / "hf", temp_ / "run", {});
  }

  CheckpointReader reader() const { return CheckpointReader(find_checkpoint(temp_ / "run")); }
  const Family& family() const { return family_for(imported_.model); }

  /// The configuration in the imported checkpoint, with the golden batch.
  Config config(int64_t n, int64_t dp) const {
    Config c = config_of(reader());
    c.balance.aux_coef = 0;
    c.optim.kind = OptimizerKind::sgd, c.optim.weight_decay = 0, c.optim.clip = 0;
    c.train.seq_len = GoldenFile::kSeqLen;
    c.train.global_batch = GoldenFile::kSequences, c.train.micro_batch = GoldenFile::kSequences / dp;
    c.layout.n = n, c.layout.dp = dp;
    c.run.threads = 1, c.run.device = test_device();
    return c;
  }

  struct Step {
    StepResult result;
    Tensors gradients;
  };
  Step step(const Config& c) const {
    Step step;
    std::mutex mutex;
    run_ranks(c.run, Mesh(c.layout).world_size(), [&](Rank& rank) {
      Session session(c, rank);
      load_weights(session, reader());
      const StepResult mine =
          session.step([&](std::span<const int64_t> positions) { return golden_.batch(positions); }, 0, 0);
      const std::lock_guard lock(mutex);
      collect_gradients(session, step.gradients);
      if (rank.rank == 0) step.result = mine;
    });
    return step;
  }

  void expect_their_loss_and_gradients(int64_t n, int64_t dp) {
    const auto [result, gradients] = step(config(n, dp));
    EXPECT_NEAR(result.loss, golden_.floats("loss")[0], 1e-5 * result.loss);
    EXPECT_EQ(gradients.size(), weights_.size());
    for (const auto& [name, gradient] : gradients)
      EXPECT_LT(relative_error(gradient, golden_.floats("grad." + their_name(family(), name))), 1e-4) << name;
  }

  const GoldenFile golden_;
  TempFolder temp_;
  Weights weights_;
  Converted imported_;
};

TEST_P(Convert, LogitsAreTheirs) {
  const Config c = config(1, 1);
  run_ranks(c.run, 1, [&](Rank& rank) {
    Session session(c, rank, false);
    load_weights(session, reader());
    const std::vector<int64_t> both{0, 1};
    session.feed().send(golden_.batch(both), 0, 0);
    const auto logits = fetch_floats(*rank.device, session.stage().logits(), DType::f32,
                                     GoldenFile::kSequences * GoldenFile::kSeqLen * c.model.vocab);
    EXPECT_LT(relative_error(logits, golden_.floats("logits")), 1e-5);
  });
}

TEST_P(Convert, LossAndGradientsAreTheirs) {
  expect_their_loss_and_gradients(1, 1);
}

TEST_P(Convert, LossAndGradientsOnTwoRanksAreTheirs) {
  expect_their_loss_and_gradients(2, 1);
}

TEST_P(Convert, LossAndGradientsOnFourRanksAreTheirs) {
  expect_their_loss_and_gradients(2, 2);
}

TEST_P(Convert, ExportIsBitEqual) {
  export_huggingface(reader(), imported_.model, temp_ / "back", {.like = temp_ / "run/huggingface"});
  const Weights back = read_hf_folder(temp_ / "back");
  ASSERT_EQ(back.size(), weights_.size());
  for (const auto& [name, weight] : weights_) EXPECT_TRUE(back.at(name).bytes == weight.bytes) << name;
}

std::string family_name(const testing::TestParamInfo<const char*>& one) {
  const std::string name = one.param;
  return name.substr(0, name.find('_', 1));
}

/// How many tokens chose each expert in the golden file, layer by layer.
std::vector<std::vector<int64_t>> their_expert_load(const GoldenFile& golden, const ModelConfig& m) {
  std::vector<std::vector<int64_t>> load;
  for (int64_t i = 0; i < m.num_layers - m.num_dense_layers; ++i) {
    load.emplace_back(static_cast<size_t>(m.num_experts));
    for (const int32_t expert : golden.values<int32_t>(fmt::format("experts.{}", i)))
      ++load.back()[static_cast<size_t>(expert)];
  }
  return load;
}

class ConvertBf16 : public Convert {
 protected:
  // In BF16 a number is off by up to 2^-9 of itself whenever it is stored, by 0.8e-3 in the mean. A gradient of these models
  // has some 70 such numbers behind it, one after another (weights and activations of two or three layers, forward and
  // backward), whose errors are independent: 0.8e-3 * sqrt(70) is 0.7 %, and attention and gates make two or three times that
  // of it, 2 % (found on the CPU: up to 1.9 % for Mixtral, 3.2 % for three layers). Allowed are 5 % of a gradient's norm, so a
  // norm within 5 % and a cosine of at least 1 - 0.05^2 / 2; a missing factor, row or expert makes far more. A token's loss is
  // off by 2 % of logits of deviation 1, by 0.02 of about 6, and the mean over 64 tokens by an eighth of it, 4e-4: 2e-3 are
  // allowed.
  void expect_near(const Step& found, double loss,
                   const std::function<std::vector<float>(const std::string&)>& gradient_of) const {
    EXPECT_NEAR(found.result.loss, loss, 2e-3 * loss);
    EXPECT_EQ(found.gradients.size(), weights_.size());
    for (const auto& [name, gradient] : found.gradients) {
      const auto expected = gradient_of(name);
      const double norm = norm_of(gradient), expected_norm = norm_of(expected);
      const double dot = std::inner_product(gradient.begin(), gradient.end(), expected.begin(), 0.0);
      EXPECT_NEAR(norm, expected_norm, 0.05 * expected_norm) << name;
      EXPECT_GT(dot, (1 - 0.05 * 0.05 / 2) * norm * expected_norm) << name;
    }
  }
};

// Every token must go to their experts, which is so: their router logits are at least 0.02 from another choice
// (DeepSeek, three layers: 0.05).
TEST_P(ConvertBf16, LossAndGradientsAreNearTheirs) {
  Config c = config(1, 1);
  c.train.compute = ComputeType::bf16;
  const Step found = step(c);
  ASSERT_EQ(found.result.expert_load, their_expert_load(golden_, c.model));
  expect_near(found, golden_.floats("loss")[0],
              [&](const std::string& name) { return golden_.floats("grad." + their_name(family(), name)); });
}

// SparseMixer decides more, and closer: all experts are chosen instead, and FP32 on the same device is the measure.
class PhiBf16 : public ConvertBf16 {};

TEST_P(PhiBf16, LossAndGradientsAreNearThoseInFp32) {
  Config c = config(1, 1);
  c.model.router.score = ScoreFunction::softmax;
  c.model.top_k = c.model.num_experts;
  const Step expected = step(c);
  c.train.compute = ComputeType::bf16;
  expect_near(step(c), expected.result.loss,
              [&](const std::string& name) { return expected.gradients.at(name); });
}

INSTANTIATE_TEST_SUITE_P(Families, Convert,
                         testing::Values("mixtral_tiny.safetensors", "qwen3_moe_tiny.safetensors",
                                         "deepseek_tiny.safetensors", "phimoe_tiny.safetensors"),
                         family_name);
INSTANTIATE_TEST_SUITE_P(Families, ConvertBf16,
                         testing::Values("mixtral_tiny.safetensors", "qwen3_moe_tiny.safetensors",
                                         "deepseek_tiny.safetensors"),
                         family_name);
INSTANTIATE_TEST_SUITE_P(Families, PhiBf16, testing::Values("phimoe_tiny.safetensors"), family_name);

}  // namespace
}  // namespace moesaic::test
