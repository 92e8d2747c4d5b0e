// Evaluation and generation from a checkpoint.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/thrown.h"
#include "support/train_run.h"
#include "train/generate.h"

namespace moesaic {
namespace {

using namespace test;
using testing::HasSubstr;

TEST(Evaluation, OfTheCheckpointIsTheTrainersOwnOnItsLayoutAndCloseOnOthers) {
  const TrainRun run;
  Config c = run.config("a");
  c.layout.n = c.layout.dp = 2;
  const TrainSummary summary = run.train(c);
  const auto same = evaluate_checkpoint(c, summary.checkpoint, 0);
  EXPECT_EQ(same.loss, summary.val_loss);
  EXPECT_EQ(same.counted, (300 - 1) / 16 * 16);  // a twentieth of 6000 tokens, whole samples
  for (const auto& [dp, n] : {std::pair(1, 1), std::pair(1, 4), std::pair(4, 1)}) {
    Config other = c;
    other.layout.dp = dp, other.layout.n = n;
    const auto result = evaluate_checkpoint(other, summary.checkpoint, 0);
    EXPECT_NEAR(result.loss, same.loss, 1e-5 * same.loss) << dp << " x " << n;
    EXPECT_EQ(result.counted, same.counted);
  }
}

TEST(Evaluation, OfSomeSequencesIsTheMeanOfTheFirst) {
  const TrainRun run;
  Config c = run.config("a");
  const std::string checkpoint = run.train(c).checkpoint;
  // 5 is no multiple of the micro-batch: what is past the end counts nothing.
  double sum = 0;
  run_ranks(c.run, 1, [&](Rank& rank) {
    Session session(c, rank, false);
    load_checkpoint(session, CheckpointReader(checkpoint));
    const Loader loader(c.data, c.train.seq_len, c.model.vocab, c.train.seed);
    for (int64_t i = 0; i < 5; ++i)
      sum += session
                 .evaluate(
                     [&](std::span<const int64_t> numbers) {
                       std::vector<int64_t> shifted;
                       for (int64_t number : numbers) shifted.push_back(number + i);
                       return loader.valid(shifted);
                     },
                     1)
                 .loss;
  });
  const auto five = evaluate_checkpoint(c, checkpoint, 5);
  EXPECT_NEAR(five.loss, sum / 5, 1e-6);
  EXPECT_EQ(five.counted, 5 * 16);
}

TEST(Evaluation, DuringTrainingChangesNothing) {
  const TrainRun run;
  Config c = run.config("often");
  c.layout.n = 2;
  c.train.eval_every = 1;
  run.train(c);
  c.run.name = "never";
  c.train.eval_every = 0;
  run.train(c);
  EXPECT_EQ(all_tensors(run.checkpoint("often", 6)), all_tensors(run.checkpoint("never", 6)));
}

/// A byte model after a few steps.
Config byte_model(const TrainRun& run) {
  Config c = run.config("bytes");
  c.model.vocab = 259;
  return c;
}

std::string generated(const Config& c, const std::string& checkpoint, const GenerateOptions& options) {
  std::string text;
  generate(c, checkpoint, options, [&](const std::string& piece) { text += piece; });
  return text;
}

TEST(Generate, IsAFunctionOfTheSeed) {
  const TrainRun run;
  Config c = byte_model(run);
  c.layout.n = 2;
  const std::string checkpoint = run.train(c).checkpoint;
  const GenerateOptions one{.prompt = "abc", .num_tokens = 40, .seed = 1},
      two{.prompt = "abc", .num_tokens = 40, .seed = 2};
  EXPECT_FALSE(generated(c, checkpoint, one).empty());
  EXPECT_EQ(generated(c, checkpoint, one), generated(c, checkpoint, one));
  EXPECT_NE(generated(c, checkpoint, one), generated(c, checkpoint, two));
}

TEST(Generate, WithoutTemperatureTakesTheMostLikelyWhateverTheSeed) {
  const TrainRun run;
  const Config c = byte_model(run);
  const std::string checkpoint = run.train(c).checkpoint;
  const GenerateOptions one{.prompt = "x", .num_tokens = 20, .temperature = 0, .seed = 1},
      two{.prompt = "x", .num_tokens = 20, .temperature = 0, .seed = 2};
  EXPECT_EQ(generated(c, checkpoint, one), generated(c, checkpoint, two));
}

TEST(Generate, UsesTheTokenizerNamed) {
  const TrainRun run;
  Config c = byte_model(run);
  c.data.tokenizer = MOESAIC_SOURCE_DIR "/tests/golden/tokenizers/gpt2.json";
  c.model.vocab = 704;  // the tokenizer's 700, and a few for alignment
  const std::string checkpoint = run.train(c).checkpoint;
  // So hot that all tokens are about equally likely: most stand for several bytes.
  const GenerateOptions options{.prompt = "the ", .num_tokens = 60, .temperature = 100, .seed = 3};
  EXPECT_GT(generated(c, checkpoint, options).size(), 90u);
  c.data.tokenizer = MOESAIC_SOURCE_DIR "/tests/golden/tokenizers/llama3.json";
  EXPECT_THAT(message_of([&] { generated(c, checkpoint, options); }),
              testing::AllOf(HasSubstr("llama3.json has 706 ids"), HasSubstr("704")));
}

TEST(Generate, SeesTheLastTokensOfALongPrompt) {
  const TrainRun run;
  const Config c = byte_model(run);
  const std::string checkpoint = run.train(c).checkpoint;
  const std::string tail = "0123456789abcdef";  // S = 16
  const GenerateOptions longer{.prompt = "something before it " + tail, .num_tokens = 12},
      shorter{.prompt = tail, .num_tokens = 12};
  EXPECT_EQ(generated(c, checkpoint, longer), generated(c, checkpoint, shorter));
}

TEST(Generate, RefusesAModelWithoutBytes) {
  const TrainRun run;
  const Config c = run.config("a");  // V = 67
  const std::string checkpoint = run.train(c).checkpoint;
  EXPECT_THAT(message_of([&] { generated(c, checkpoint, {}); }), HasSubstr("model.vocab >= 259, found 67"));
}

}  // namespace
}  // namespace moesaic
