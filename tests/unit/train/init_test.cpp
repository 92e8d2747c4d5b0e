// run.init: a new run from the weights of another.
#include <gmock/gmock.h>

#include <bit>

#include "checkpoint/weights.h"
#include "checkpoint/writer.h"
#include "support/thrown.h"
#include "support/train_run.h"
#include "train/initial_weights.h"

namespace moesaic {
namespace {

using namespace test;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

/// A run whose one step changes nothing, so that what it saves is what it started from.
Config still(Config c) {
  c.train.steps = 1;
  c.optim.lr = c.optim.min_lr = 0;
  c.optim.weight_decay = 0;
  c.model.router.bias_rate = 0;
  return c;
}

/// The FP32 masters of a checkpoint, and its router biases.
Tensors masters(const std::string& checkpoint) {
  const CheckpointReader reader(checkpoint);
  Tensors all;
  for (const StoredWeight& weight : stored_weights(reader)) all[weight.name] = read_master(reader, weight);
  for (const auto& [name, bytes] : all_tensors(checkpoint))
    if (name.starts_with("router_bias/")) {
      all[name].resize(bytes.size() / 4);
      std::memcpy(all[name].data(), bytes.data(), bytes.size());
    }
  return all;
}

/// The weights of a checkpoint as another one that holds nothing else.
std::string weights_alone(const TrainRun& run, const std::string& checkpoint) {
  const CheckpointReader reader(checkpoint);
  const auto tensors = all_tensors(checkpoint);
  std::vector<PieceToSave> pieces;
  for (const StoredPiece& piece : reader.pieces()) {
    if (piece.kind != "weight" && piece.kind != "router_bias") continue;
    if (!pieces.empty() && pieces.back().tensor() == piece.tensor()) continue;
    PieceToSave whole;
    static_cast<Piece&>(whole) = piece;
    whole.begin = 0, whole.count = 1, whole.data = tensors.at(piece.tensor()).data();
    for (const int64_t extent : piece.shape) whole.count *= extent;
    pieces.push_back(whole);
  }
  const CheckpointWriter writer(run.folder() / "weights/checkpoints", 0);
  writer.begin();
  writer.publish(std::vector{writer.write_shard(0, pieces)}, reader.state());
  return writer.path();
}

TEST(Init, StartsFromTheWeightsAtStepZeroWithANewOptimizerOnAnyLayout) {
  const TrainRun run;
  run.train(run.config("first"));
  Config c = still(run.config("second"));
  c.run.init = run.folder() / "runs/first";
  c.layout.n = c.layout.dp = 2;
  EXPECT_EQ(run.train(c).steps, 1);
  const std::string first = run.checkpoint("first", 6), second = run.checkpoint("second", 1);
  EXPECT_THAT(different(masters(second), masters(first)), testing::IsEmpty());
  EXPECT_EQ(state_of(second)["num_updates"], 1);
  EXPECT_EQ(state_of(second)["data_position"], 8);
  EXPECT_NE(float_tensors(second)["exp_avg/head"], float_tensors(first)["exp_avg/head"]);
  EXPECT_THAT(run.events("second", "start"), ElementsAre(HasSubstr("from the weights of " + first)));
  // The test sees differences: another seed starts elsewhere.
  Config random = still(run.config("random"));
  run.train(random);
  EXPECT_FALSE(different(masters(run.checkpoint("random", 1)), masters(first)).empty());
}

TEST(Init, KeepsFp32ValuesAsTheMastersOfABf16Run) {
  const TrainRun run;
  run.train(run.config("wide"));
  Config c = still(run.config("narrow"));
  c.run.init = run.folder() / "runs/wide";
  c.train.compute = ComputeType::bf16;
  c.layout.dp = 2;
  run.train(c);
  const auto narrow = run.checkpoint("narrow", 1);
  EXPECT_THAT(different(masters(narrow), masters(run.checkpoint("wide", 6))), testing::IsEmpty());
  // And back: an FP32 run starts from the masters.
  c = still(run.config("again"));
  c.run.init = narrow;
  run.train(c);
  EXPECT_THAT(different(masters(run.checkpoint("again", 1)), masters(narrow)), testing::IsEmpty());
}

TEST(Init, TakesWeightsAloneWhichCannotBeResumed) {
  const TrainRun run;
  run.train(run.config("first"));
  const std::string weights = weights_alone(run, run.checkpoint("first", 6));
  Config c = still(run.config("second"));
  c.run.resume = run.folder() / "weights";
  EXPECT_THAT(message_of([&] { run.train(c); }), AllOf(HasSubstr(weights), HasSubstr("run.init")));
  c.run.resume = "";
  c.run.init = run.folder() / "weights";
  run.train(c);
  EXPECT_THAT(different(masters(run.checkpoint("second", 1)), masters(weights)), testing::IsEmpty());
  const Config own = config_of(CheckpointReader(weights));
  const auto whole = evaluate_checkpoint(own, run.checkpoint("first", 6), 0);
  EXPECT_EQ(evaluate_checkpoint(own, weights, 0).loss, whole.loss);
}

TEST(Init, EvaluatesInAnotherComputeType) {
  const TrainRun run;
  run.train(run.config("wide"));
  Config c = config_of(CheckpointReader(run.checkpoint("wide", 6)));
  const double loss = evaluate_checkpoint(c, run.checkpoint("wide", 6), 0).loss;
  c.train.compute = ComputeType::bf16;
  EXPECT_NEAR(evaluate_checkpoint(c, run.checkpoint("wide", 6), 0).loss, loss, 0.02 * loss);
}

TEST(Init, RefusesAnotherModel) {
  const TrainRun run;
  run.train(run.config("first"));
  Config c = run.config("second");
  c.run.init = run.folder() / "runs/first";
  c.model.num_layers = 1;
  EXPECT_THAT(message_of<IoError>([&] { run.train(c); }), HasSubstr("holds weight/layers.1."));
  c.model.num_layers = 3;
  EXPECT_THAT(message_of<IoError>([&] { run.train(c); }), HasSubstr("no tensor weight/layers.2."));
  c.model.num_layers = 2;
  c.model.expert_ffn *= 2;
  EXPECT_THAT(message_of<IoError>([&] { run.train(c); }),
              AllOf(HasSubstr("experts.0.w1"), HasSubstr("[24, 32]")));
}

TEST(Init, RefusesAFolderWithoutACheckpoint) {
  const TrainRun run;
  Config c = run.config("first");
  c.run.init = run.folder() / "nowhere";
  EXPECT_THAT(message_of<IoError>([&] { run.train(c); }), HasSubstr("neither a checkpoint nor a run folder"));
}

TEST(Init, NamesTheKeysInWhichTheModelsDiffer) {
  Config here = small_config(), there = here;
  there.model.name = "other";
  EXPECT_THAT(model_differences(here, there), testing::IsEmpty());
  there.model.rope_theta = 5e5;
  EXPECT_THAT(model_differences(here, there),
              ElementsAre("model.rope_theta is 10000.0 here and 500000.0 there"));
}

}  // namespace
}  // namespace moesaic
