// The golden models as users meet them: a folder of Hugging Face is imported, runs with its own logits, loss and gradients on
// one rank and on more, and is exported again bit for bit.
#include "hf/convert.h"

#include <gtest/gtest.h>

#include "golden/golden_file.h"
#include "support/hf_model.h"
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

  void expect_their_loss_and_gradients(int64_t n, int64_t dp) {
    const Config c = config(n, dp);
    Tensors gradients;
    std::mutex mutex;
    StepResult result;
    run_ranks(c.run, n * dp, [&](Rank& rank) {
      Session session(c, rank);
      load_weights(session, reader());
      const StepResult mine =
          session.step([&](std::span<const int64_t> positions) { return golden_.batch(positions); }, 0, 0);
      const std::lock_guard lock(mutex);
      collect_gradients(session, gradients);
      if (rank.rank == 0) result = mine;
    });
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

INSTANTIATE_TEST_SUITE_P(Families, Convert,
                         testing::Values("mixtral_tiny.safetensors", "qwen3_moe_tiny.safetensors",
                                         "deepseek_tiny.safetensors", "phimoe_tiny.safetensors"),
                         [](const auto& one) {
                           const std::string name = one.param;
                           return name.substr(0, name.find('_', 1));
                         });

}  // namespace
}  // namespace moesaic::test
